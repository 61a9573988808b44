"""MTCon, first published as MSCon: a supervised contrastive head per task, learned weights.

The losses of the tasks are weighted by 1/sigma^2, learned per task. MSCon: Mu et al. 2023,
arXiv:2307.02712. MTCon: "Multitask Contrastive Learning", eq. 8, openreview.net, id UB03wcP8RH.
With equal weights it is MTCon-s, the loss of CCN: Mu and Guttag 2022, "Conditional Contrastive
Networks", NeurIPS workshop on table representation learning.

The kind of a task decides what positives are: items of the same class, overlapping label sets
(MultiSupCon) or near numbers. A training may have tasks of all kinds.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.errors import nearest
from mtcon_ray.losses.calibrated_weighting import CalibratedVariance
from mtcon_ray.losses.positives import EqualLabel, Relation
from mtcon_ray.losses.soft_positives import LabelSets, Near
from mtcon_ray.losses.weighting import (
    FixedWeights,
    LearnedTemperature,
    LearnedVariance,
    Weighting,
)
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, SupervisedSpec, Temperature


@METHODS.register("mtcon")
class MTCon(ContrastiveMethod):
    """MTCon: by default the sum over tasks of exp(-s) L + s, with s = log sigma^2 learned.

    L is the contrastive loss of the task's head. `weighting` offers other combinations.
    """

    class Spec(SupervisedSpec):
        """A contrastive head per task, supervised by its classes, label sets or numbers."""

        name: Literal["mtcon"] = "mtcon"
        weighting: Literal["learned", "equal", "calibrated", "temperature"] = Field(
            "learned",
            description="weights of the tasks: 1/sigma^2, as MTCon (learned), all equal, as "
            "MTCon-s and CCN (equal), or learned from a loss's excess over its floor "
            "(calibrated). With temperature, sigma^2 divides the logits instead. log sigma^2 is "
            "learned at train.lr without weight decay and clamped to ±6",
        )
        normalise_weights: bool = Field(
            False, description="scale learned weights to mean 1, as for calibrated weights"
        )
        least_excess: float = Field(
            0.5,
            gt=0,
            le=1,
            description="calibrated weights: lower bound of the excess. No task gets more than "
            "1/least_excess times the weight of random labels",
        )
        threshold: float = Field(
            0.3, ge=0, le=1, description="label sets: lowest Jaccard overlap of positives"
        )
        bandwidth: float = Field(
            0.5,
            gt=0,
            le=100,
            description="numbers: width of the Gaussian kernel for the weights of positives, in "
            "standard deviations of the train split",
        )
        temperature_by_task: dict[str, Temperature] = Field(
            {}, description="temperatures of single tasks (default: `temperature`)"
        )

        def check(self, problem: Problem) -> None:
            super().check(problem)
            for task in self.temperature_by_task:
                if task not in problem.tasks:
                    raise ValueError(
                        f"temperature_by_task must name tasks of data.tasks {list(problem.tasks)}, "
                        f"got {task!r}{nearest(task, problem.tasks)}"
                    )

    spec: Spec

    def make_weighting(self) -> Weighting:
        match self.spec.weighting:
            case "equal":
                return FixedWeights()
            case "calibrated":
                return CalibratedVariance(self.tasks, least_excess=self.spec.least_excess)
            case "temperature":
                return LearnedTemperature(self.tasks)
            case "learned":
                return LearnedVariance(self.tasks, normalise=self.spec.normalise_weights)

    def temperature(self, head: str) -> float | Tensor:
        fixed = self.spec.temperature_by_task.get(head, self.spec.temperature)
        if isinstance(self.weighting, LearnedTemperature):
            return fixed * self.weighting.factor(head)
        return fixed

    def relation(self, head: str, batch: Batch) -> Relation:
        spec = self.spec
        match self.problem.kinds[head]:
            case "classes":
                return EqualLabel(batch.labels[head], missing=spec.missing)
            case "set":
                sets_BL = batch.label_sets[head]
                return LabelSets(sets_BL, threshold=spec.threshold, missing=spec.missing)
            case "number":
                numbers_B = batch.numbers[head]
                return Near(numbers_B, bandwidth=spec.bandwidth, missing=spec.missing)
