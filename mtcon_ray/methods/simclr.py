"""SimCLR: own view in one head or several, one fixed temperature, no label at all (METHODS 1)."""

from typing import Literal

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.relations import OwnView, Relation
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec
from mtcon_ray.methods.self_supervised import SelfSupervisedSpec, number_heads


@METHODS.register("simclr")
class SimCLR(ContrastiveMethod):
    """NT-Xent; the tasks are only probed."""

    class Spec(ContrastiveSpec, SelfSupervisedSpec):
        """Self-supervised heads; several are the plain counterpart of AMCL's."""

        name: Literal["simclr"] = "simclr"

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return number_heads(self.spec.num_heads)

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()
