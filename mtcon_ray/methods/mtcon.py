"""MTCon, which its first paper calls MSCon: one head per task, weighed by learned uncertainty.

Equal label per head, one fixed temperature, 1/sigma^2 learned per task (METHODS 4, 5); with
equal weights it is MTCon-s, and CCN by another name (METHODS 3).
"""

from typing import Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.calibrated import CalibratedVariance
from mtcon_ray.losses.relations import EqualLabel, Relation
from mtcon_ray.losses.weighting import (
    EqualWeights,
    LearnedTemperature,
    LearnedVariance,
    Weighting,
)
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec


@METHODS.register("mtcon")
class MTCon(ContrastiveMethod):
    """Sum over tasks of exp(-s) SupCon(head of the task) + s."""

    class Spec(ContrastiveSpec):
        """One supervised contrastive head per task."""

        name: Literal["mtcon"] = "mtcon"
        weighting: Literal["learned", "equal", "calibrated", "temperature"] = Field(
            "learned",
            description="learned: 1/sigma^2 per task, as MTCon; equal: MTCon-s, CCN; calibrated: "
            "learned from a loss's excess over its floor; temperature: sigma^2 divides the logits",
        )
        normalise_weights: bool = Field(
            False, description="scale learned weights to mean 1, as calibrated ones always are"
        )
        missing: Literal["skip", "self_only"] = Field(
            "skip", description="an item without label: no partner, or its own other views"
        )

        def check(self, problem: Problem) -> None:
            super().check(problem)
            others = [t for t, kind in problem.kinds.items() if kind != "classes"]
            if others:
                raise ValueError(f"data.tasks must be columns of classes, got {others}")

    spec: Spec

    def make_weighting(self) -> Weighting:
        match self.spec.weighting:
            case "equal":
                return EqualWeights()
            case "calibrated":
                return CalibratedVariance(self.tasks)
            case "temperature":
                return LearnedTemperature(self.tasks)
            case "learned":
                return LearnedVariance(self.tasks, normalise=self.spec.normalise_weights)

    def temperature(self, head: str) -> float | Tensor:
        fixed = super().temperature(head)
        if isinstance(self.weighting, LearnedTemperature):
            return fixed * self.weighting.factor(head)
        return fixed

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head], missing=self.spec.missing)
