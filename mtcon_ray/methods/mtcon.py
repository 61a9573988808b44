"""MTCon, which its first paper calls MSCon: one head per task, weighed by learned uncertainty.

Equal label per head, one fixed temperature, 1/sigma^2 learned per task (METHODS 4, 5); with
equal weights it is MTCon-s, and CCN by another name (METHODS 3).
"""

from typing import Literal

from pydantic import Field

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.relations import EqualLabel, Relation
from mtcon_ray.losses.weighting import EqualWeights, LearnedVariance, Weighting
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec


@METHODS.register("mtcon")
class MTCon(ContrastiveMethod):
    """Sum over tasks of exp(-s) SupCon(head of the task) + s."""

    class Spec(ContrastiveSpec):
        """One supervised contrastive head per task."""

        name: Literal["mtcon"] = "mtcon"
        weighting: Literal["learned", "equal"] = Field(
            "learned", description="learned: 1/sigma^2 per task, as MTCon; equal: MTCon-s, CCN"
        )
        normalise_weights: bool = Field(
            False, description="scale learned weights to mean 1: keeps the encoder's step size"
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
        if self.spec.weighting == "equal":
            return EqualWeights()
        return LearnedVariance(self.tasks, normalise=self.spec.normalise_weights)

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head], missing=self.spec.missing)
