"""MoCo: queries against their keys from a momentum encoder, and a queue of earlier keys."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.self_supervised import moco, other_views
from mtcon_ray.methods.base import MethodOutput, compare
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.spec.methods.self_supervised import MoCoSpec
from mtcon_ray.spec.problem import Problem


class MoCo(SelfSupervisedMethod):
    """MoCo, He et al. 2020, arXiv:1911.05722, eq. 1, averaged over all pairs of different views.

    Each view is a query for the keys of its item's other views.
    """

    spec: MoCoSpec

    def __init__(self, spec: MoCoSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.add_queues(spec)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each head's loss in nats. z_by_head[head] is z_BVD, unit rows [query | key]."""
        losses, compared = {}, {}
        temperature = self.spec.temperature
        for (head, z_BVD), rows_KD in zip(z_by_head.items(), self.queues.rows, strict=True):
            query_BVD, key_BVD = z_BVD.chunk(2, dim=2)
            compared[head] = compare(query_BVD, key_BVD)
            query_ND, queue_KD = query_BVD.flatten(0, 1), rows_KD.to(query_BVD.dtype)
            keys = other_views(key_BVD).flatten(0, 1).unbind(dim=1)
            terms = [moco(query_ND, key_ND, queue_KD, temperature=temperature) for key_ND in keys]
            losses[head] = torch.stack(terms).mean()
        return MethodOutput(losses, compared)
