"""MTCon, which its first paper calls MSCon: one head per task, weighed by learned uncertainty.

Equal label per head, one fixed temperature, 1/sigma^2 learned per task (METHODS 4, 5); with
equal weights it is MTCon-s, and CCN by another name (METHODS 3). A head's relation follows from
its task's kind, so that one run may hold classes, label sets (METHODS 10.1) and numbers.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.errors import nearest
from mtcon_ray.losses.calibrated import CalibratedVariance
from mtcon_ray.losses.relations import EqualLabel, Relation
from mtcon_ray.losses.similarity import LabelSets, Near
from mtcon_ray.losses.weighting import (
    EqualWeights,
    LearnedTemperature,
    LearnedVariance,
    Weighting,
)
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec

Temperature = Annotated[float, Field(gt=0, le=100)]


@METHODS.register("mtcon")
class MTCon(ContrastiveMethod):
    """Sum over tasks of exp(-s) L(head of the task) + s."""

    class Spec(ContrastiveSpec):
        """One contrastive head per task, supervised by its classes, label sets or numbers."""

        name: Literal["mtcon"] = "mtcon"
        weighting: Literal["learned", "equal", "calibrated", "temperature"] = Field(
            "learned",
            description="learned: 1/sigma^2 per task, as MTCon; equal: MTCon-s, CCN; calibrated: "
            "learned from a loss's excess over its floor; temperature: sigma^2 divides the logits. "
            "log sigma^2 is learned at train.lr without weight decay and clamped to ±6",
        )
        normalise_weights: bool = Field(
            False, description="scale learned weights to mean 1, as calibrated ones always are"
        )
        least_excess: float = Field(
            0.5,
            gt=0,
            le=1,
            description="of calibrated weights: a task is weighed up to 1/least_excess above noise",
        )
        missing: Literal["skip", "self_only"] = Field(
            "skip", description="an item without label: no partner, or its own other views"
        )
        threshold: float = Field(
            0.3, ge=0, le=1, description="of tasks that are label sets: partners' Jaccard overlap"
        )
        bandwidth: float = Field(
            0.5,
            gt=0,
            le=100,
            description="of tasks that are numbers: the kernel's, in deviations of the train split",
        )
        temperature_by_task: dict[str, Temperature] = Field(
            {}, description="task to its own temperature; the others have `temperature`"
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
                return EqualWeights()
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
