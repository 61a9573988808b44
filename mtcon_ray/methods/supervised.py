"""Methods with labels: SupCon, MTCon, MultiSupCon and cross-entropy, and the untrained baseline."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import weighting
from mtcon_ray.losses.classification import cross_entropy
from mtcon_ray.losses.positives import EqualLabel, LabelSets, Near, Relation
from mtcon_ray.methods.base import ContrastiveMethod, Method, MethodOutput
from mtcon_ray.spec.methods import supervised as specs
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

# exp(-s) CE + s/2: Kendall et al. 2018, arXiv:1705.07115, eq. 10.
KENDALL_PENALTY = 0.5


class SupCon(ContrastiveMethod):
    """SupCon, Khosla et al. 2020, arXiv:2004.11362, eq. 2, on the labels of a task.

    Positives have the same label. It has a single head with a fixed temperature.
    """

    spec: specs.SupConSpec

    def name_heads(self) -> tuple[str, ...]:
        return (self.spec.task,)

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head])


class MTCon(ContrastiveMethod):
    """MTCon, first published as MSCon: a supervised contrastive head per task, learned weights.

    By default it is the sum over tasks of exp(-s) L + s, with s = log sigma^2 learned. L is the
    contrastive loss of the task's head. `weighting` offers other combinations. MSCon: Mu et al.
    2023, arXiv:2307.02712. MTCon: "Multitask Contrastive Learning", eq. 8, openreview.net, id
    UB03wcP8RH. With equal weights it is MTCon-s, the loss of CCN: Mu and Guttag 2022, "Conditional
    Contrastive Networks", NeurIPS workshop on table representation learning.

    The kind of a task decides what positives are: items of the same class, overlapping label sets
    (MultiSupCon) or near numbers. A training may have tasks of all kinds.
    """

    spec: specs.MTConSpec

    def make_weighting(self) -> weighting.Weighting:
        match self.spec.weighting:
            case "equal":
                return weighting.FixedWeights()
            case "calibrated":
                return weighting.CalibratedVariance(self.tasks, least_excess=self.spec.least_excess)
            case "temperature":
                return weighting.LearnedTemperature(self.tasks)
            case "learned":
                return weighting.LearnedVariance(self.tasks, normalise=self.spec.normalise_weights)

    def temperature(self, head: str) -> float | Tensor:
        fixed = self.spec.temperature_by_task.get(head, self.spec.temperature)
        if isinstance(self.weighting, weighting.LearnedTemperature):
            return fixed * self.weighting.factor(head)
        return fixed

    def relation(self, head: str, batch: Batch) -> Relation:
        match self.problem.kinds[head]:
            case "classes":
                return EqualLabel(batch.labels[head])
            case "set":
                return LabelSets(batch.label_sets[head], threshold=self.spec.threshold)
            case "number":
                return Near(batch.numbers[head], bandwidth=self.spec.bandwidth)


class MultiSupCon(ContrastiveMethod):
    """Positives have a Jaccard overlap of at least `threshold` and are weighted by the overlap.

    At threshold 1 positives have equal label sets, as in SupCon. It has a single head with a fixed
    temperature. Zaigrajew and Zieba, code at github.com/WolodjaZ/MultiSupContrast.
    """

    spec: specs.MultiSupConSpec

    def name_heads(self) -> tuple[str, ...]:
        if self.spec.sets_from == "classes":
            return ("classes",)
        return (self.spec.task or self.problem.of_kind("set")[0],)

    def relation(self, head: str, batch: Batch) -> Relation:
        of_classes = self.spec.sets_from == "classes"
        sets_BL = self._sets_of_classes(batch) if of_classes else batch.label_sets[head]
        return LabelSets(sets_BL, threshold=self.spec.threshold)

    def _sets_of_classes(self, batch: Batch) -> Tensor:
        """Returns each item's classes in all tasks as a label set, uint8 [B, sum of classes].

        The bits of a task are unknown if the item's class is unknown.
        """
        bits = []
        for task in self.problem.of_kind("classes"):
            class_B1 = batch.labels[task][:, None]
            # Not one_hot: it reads the values on the device.
            each_C = torch.arange(self.problem.sizes[task], device=class_B1.device)
            bits_BC = (class_B1 == each_C).to(torch.uint8)
            bits.append(bits_BC.where(class_B1 != MISSING, UNKNOWN_BIT))
        return torch.cat(bits, dim=1)


class XEnt(Method):
    """Softmax cross-entropy on a single task or on all tasks with classes. Every view is a row."""

    spec: specs.XEntSpec

    def name_heads(self) -> tuple[str, ...]:
        return self.problem.of_kind("classes") if self.spec.task is None else (self.spec.task,)

    def make_head(self, head: str, width: int) -> nn.Module:
        num_classes, dim = self.problem.sizes[head], self.problem.head_dim
        if self.spec.head == "linear":
            return nn.Linear(width, num_classes)
        hidden = self.problem.head_hidden or width
        embedding = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        return nn.Sequential(embedding, nn.ReLU(), nn.Linear(dim, num_classes))

    def make_weighting(self) -> weighting.Weighting:
        if self.spec.weighting == "none":
            return weighting.FixedWeights()
        return weighting.LearnedVariance(self.heads, penalty=KENDALL_PENALTY)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each task's cross-entropy in nats. z_by_head[task] holds logits [B, V, C]."""
        losses = {
            task: cross_entropy(logits_BVC, batch.labels[task])
            for task, logits_BVC in z_by_head.items()
        }
        return MethodOutput(losses)


class NoTraining(Method):
    """Baseline of all trained methods: an encoder with random or given weights, or handcrafted."""

    def name_heads(self) -> tuple[str, ...]:
        return ()

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns no losses."""
        return MethodOutput({})
