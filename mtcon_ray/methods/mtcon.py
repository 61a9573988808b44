"""MTCon, first published as MSCon: a supervised contrastive head per task, learned weights.

The losses of the tasks are weighted by 1/sigma^2, learned per task. MSCon: Mu et al. 2023,
arXiv:2307.02712. MTCon: "Multitask Contrastive Learning", eq. 8, openreview.net, id UB03wcP8RH.
With equal weights it is MTCon-s, the loss of CCN: Mu and Guttag 2022, "Conditional Contrastive
Networks", NeurIPS workshop on table representation learning.

The kind of a task decides what positives are: items of the same class or overlapping label sets
(MultiSupCon). A training may have tasks of both kinds.
"""

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import weighting
from mtcon_ray.losses.positives import EqualLabel, LabelSets, Relation
from mtcon_ray.methods.base import ContrastiveMethod
from mtcon_ray.spec.methods.supervised import MTConSpec


class MTCon(ContrastiveMethod):
    """MTCon: by default the sum over tasks of exp(-s) L + s, with s = log sigma^2 learned.

    L is the contrastive loss of the task's head. `weighting` offers other combinations.
    """

    spec: MTConSpec

    def make_weighting(self) -> weighting.Weighting:
        if self.spec.weighting == "equal":
            return weighting.FixedWeights()
        if self.spec.weighting == "temperature":
            return weighting.LearnedTemperature(self.tasks)
        return weighting.LearnedVariance(self.tasks, normalise=self.spec.normalise_weights)

    def temperature(self, head: str) -> float | Tensor:
        fixed = self.spec.temperature_by_task.get(head, self.spec.temperature)
        if isinstance(self.weighting, weighting.LearnedTemperature):
            return fixed * self.weighting.factor(head)
        return fixed

    def relation(self, head: str, batch: Batch) -> Relation:
        if self.problem.kinds[head] == "set":
            return LabelSets(batch.label_sets[head], threshold=self.spec.threshold)
        return EqualLabel(batch.labels[head])
