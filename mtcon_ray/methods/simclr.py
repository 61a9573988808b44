"""SimCLR: own view in one head, one fixed temperature, no label at all (METHODS 1)."""

from typing import Literal

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.relations import OwnView, Relation
from mtcon_ray.methods.base import METHODS, Method, MethodSpec


@METHODS.register("simclr")
class SimCLR(Method):
    """NT-Xent; the tasks are only probed."""

    class Spec(MethodSpec):
        """One self-supervised head."""

        name: Literal["simclr"] = "simclr"

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return ("instance",)

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()
