"""SimCLR: positives are other views of the same item. No labels, a fixed temperature."""

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.methods.base import ContrastiveMethod
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.spec.methods.self_supervised import SimCLRSpec


class SimCLR(SelfSupervisedMethod, ContrastiveMethod):
    """NT-Xent, Chen et al. 2020, arXiv:2002.05709, eq. 1, in each head."""

    spec: SimCLRSpec

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()
