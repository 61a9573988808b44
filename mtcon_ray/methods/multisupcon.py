"""MultiSupCon: positives have overlapping label sets; one head, one fixed temperature.

Zaigrajew and Zieba, code at github.com/WolodjaZ/MultiSupContrast.
"""

from typing import Literal

from pydantic import Field

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.positives import Relation
from mtcon_ray.losses.soft_positives import LabelSets
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, SupervisedSpec, check_task


@METHODS.register("multisupcon")
class MultiSupCon(ContrastiveMethod):
    """Positives are items whose Jaccard overlap is at least `threshold`, weighted by the overlap.

    At threshold 1 positives have equal label sets, as in SupCon.
    """

    class Spec(SupervisedSpec):
        """One head for a task that is a label set; the other tasks are only probed."""

        name: Literal["multisupcon"] = "multisupcon"
        task: str | None = Field(
            None, description="the task whose label sets are used; null: the only one"
        )
        threshold: float = Field(
            0.3, ge=0, le=1, description="lowest Jaccard overlap of positives; 0: all items"
        )
        pair_weights: Literal["similarity", "one"] = Field(
            "similarity", description="weight of a positive: its overlap, or 1"
        )

        def check(self, problem: Problem) -> None:
            super().check(problem)
            check_task(self.task, problem, "set")
            sets = problem.of_kind("set")
            if self.task is None and len(sets) > 1:
                raise ValueError(f"task must name one of the label sets {list(sets)}, got none")

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return (self.spec.task or self.problem.of_kind("set")[0],)

    def relation(self, head: str, batch: Batch) -> Relation:
        return LabelSets(
            batch.label_sets[head],
            threshold=self.spec.threshold,
            similarity_weights=self.spec.pair_weights == "similarity",
            missing=self.spec.missing,
        )
