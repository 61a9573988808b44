"""SupCon on one task: positives have the same label. A single head with a fixed temperature."""

from typing import Literal

from pydantic import Field

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.positives import EqualLabel, Relation
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, SupervisedSpec, check_task


@METHODS.register("supcon")
class SupCon(ContrastiveMethod):
    """SupCon, Khosla et al. 2020, arXiv:2004.11362, eq. 2, on the labels of a task."""

    class Spec(SupervisedSpec):
        """A single supervised contrastive head. The other tasks are only probed."""

        name: Literal["supcon"] = "supcon"
        task: str = Field(description="task in data.tasks with the labels to train on")

        def check(self, problem: Problem) -> None:
            super().check(problem)
            check_task(self.task, problem)

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return (self.spec.task,)

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head], missing=self.spec.missing)
