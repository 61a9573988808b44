"""Barlow Twins: the cross-correlation of two views' projections approaches the identity."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.self_supervised import barlow_twins
from mtcon_ray.methods.base import METHODS, Method, MethodOutput, compare
from mtcon_ray.methods.self_supervised import (
    RedundancySpec,
    attach,
    check_several_items,
    number_heads,
)
from mtcon_ray.models.batch_norm_heads import BatchNormProjector
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network


@METHODS.register("barlow")
class BarlowTwins(Method):
    """Barlow Twins, Zbontar et al. 2021, arXiv:2103.03230, eq. 1, in each head."""

    class Spec(RedundancySpec):
        """Barlow Twins, one projector per head. Task labels are used by the probes alone."""

        name: Literal["barlow"] = "barlow"

        def check(self, problem: Problem) -> None:
            super().check(problem)
            check_several_items(problem)

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return number_heads(self.spec.num_heads)

    def make_network(self, encoder: Encoder) -> Network:
        spec = self.spec
        return attach(
            encoder,
            self.heads,
            lambda width: BatchNormProjector(width, dim=spec.dim, hidden=spec.hidden),
        )

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the scalar loss of each head; z_by_head[head] is z_BVD, projections."""
        losses = {
            head: barlow_twins(z_BVD, off_diagonal=self.spec.off_diagonal)
            for head, z_BVD in z_by_head.items()
        }
        return MethodOutput(losses, {head: compare(z_BVD) for head, z_BVD in z_by_head.items()})
