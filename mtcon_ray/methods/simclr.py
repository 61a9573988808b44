"""SimCLR: positives are other views of the same item. No labels, a fixed temperature."""

from typing import Literal

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.methods.base import METHODS, ContrastiveMethod, ContrastiveSpec
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod, SelfSupervisedSpec


@METHODS.register("simclr")
class SimCLR(SelfSupervisedMethod, ContrastiveMethod):
    """NT-Xent, Chen et al. 2020, arXiv:2002.05709, eq. 1, in each head."""

    class Spec(ContrastiveSpec, SelfSupervisedSpec):
        """NT-Xent in a single head or several. Task labels are used by the probes alone.

        Several heads are AMCL's architecture with a fixed temperature.
        """

        name: Literal["simclr"] = "simclr"

    spec: Spec

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()
