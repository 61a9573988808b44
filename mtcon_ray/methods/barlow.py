"""Barlow Twins: the cross-correlation of two views' projections approaches the identity."""

from collections.abc import Mapping

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.self_supervised import barlow_twins
from mtcon_ray.methods.base import MethodOutput, compare
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.models.heads import BatchNormProjector
from mtcon_ray.spec.methods.self_supervised import BarlowTwinsSpec


class BarlowTwins(SelfSupervisedMethod):
    """Barlow Twins, Zbontar et al. 2021, arXiv:2103.03230, eq. 1, in each head."""

    spec: BarlowTwinsSpec

    def make_head(self, head: str, width: int) -> BatchNormProjector:
        return BatchNormProjector(width, dim=self.spec.dim, hidden=self.spec.hidden)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the scalar loss of each head. z_by_head[head] is z_BVD, projections."""
        losses = {
            head: barlow_twins(z_BVD, off_diagonal=self.spec.off_diagonal)
            for head, z_BVD in z_by_head.items()
        }
        return MethodOutput(losses, {head: compare(z_BVD) for head, z_BVD in z_by_head.items()})
