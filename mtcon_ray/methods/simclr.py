"""SimCLR: own view in one head, one fixed temperature, no label at all (METHODS 1)."""

from typing import Literal

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.relations import OwnView, Relation
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec


@METHODS.register("simclr")
class SimCLR(ContrastiveMethod):
    """NT-Xent; the tasks are only probed."""

    class Spec(ContrastiveSpec):
        """One self-supervised head."""

        name: Literal["simclr"] = "simclr"

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return ("instance",)

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()
