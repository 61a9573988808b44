"""SupCon on one task: equal label in one head, one fixed temperature (METHODS 2)."""

from typing import Literal

from pydantic import Field

from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import nearest
from mtcon_ray.losses.relations import EqualLabel, Relation
from mtcon_ray.methods.base import METHODS, Method, MethodSpec


@METHODS.register("supcon")
class SupCon(Method):
    """Khosla 2020, arXiv:2004.11362, eq. 2, on the labels of one task."""

    class Spec(MethodSpec):
        """One supervised contrastive head; the other tasks are only probed."""

        name: Literal["supcon"] = "supcon"
        task: str = Field(description="the task whose labels are used; one of data.tasks")
        missing: Literal["skip", "self_only"] = Field(
            "skip", description="an item without label: no partner, or its own other views"
        )

        def check_tasks(self, tasks: tuple[str, ...]) -> None:
            if self.task not in tasks:
                raise ValueError(
                    f"task must be one of data.tasks {list(tasks)}, got {self.task!r}"
                    f"{nearest(self.task, tasks)}"
                )

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return (self.spec.task,)

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head], missing=self.spec.missing)
