"""SimCLR, MoCo, SimSiam and Barlow Twins, and their base: numbered heads, queues of keys.

Positives are views of the same item. No labels are used, and temperatures are fixed.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.numeric import Compared
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.losses.self_supervised import barlow_twins, moco, other_views, simsiam
from mtcon_ray.methods.base import ContrastiveMethod, Method, MethodOutput, compare
from mtcon_ray.models.network import BatchNormProjector, SimSiamHead
from mtcon_ray.spec.methods import self_supervised as specs
from mtcon_ray.spec.problem import Problem


class SelfSupervisedMethod(Method):
    """Base of methods with a loss between views of an item in each of `num_heads` heads."""

    spec: specs.SelfSupervisedSpec
    queues: "KeyQueues"  # only with a teacher, see `add_queues`

    @property
    def instance_heads(self) -> tuple[str, ...]:
        """Names of the projection heads: `instance`, or `instance-1`, `instance-2`, ..."""
        count = self.spec.num_heads
        return ("instance",) if count == 1 else tuple(f"instance-{i + 1}" for i in range(count))

    def name_heads(self) -> tuple[str, ...]:
        return self.instance_heads

    def add_queues(self, spec: specs.QueueSpec) -> None:
        """Adds a teacher and a queue of its keys for each head."""
        self.momentum = spec.teacher_momentum
        width, seed = self.problem.head_dim, self.problem.seed
        self.queues = KeyQueues(len(self.heads), spec.queue_size, width, seed=seed)

    def after_step(self, output: MethodOutput) -> None:
        """Appends the step's keys to the queues, if there are any.

        Not done in `forward`: a query would find its own key among the negatives.
        """
        super().after_step(output)
        if self.momentum is not None:
            self.queues.push(output.compared)


class KeyQueues(nn.Module):
    """A queue of the last K keys for each head, first in first out.

    `rows` is [H, K, D], initially random unit rows from the seed. `position` is the index of the
    oldest keys, which are overwritten next. Both tensors are checkpointed.
    """

    rows: Tensor
    position: Tensor

    def __init__(self, num_heads: int, size: int, width: int, *, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(num_heads, size, width, generator=generator)
        self.register_buffer("rows", F.normalize(rows, dim=2))
        # A tensor, not an int: it is checkpointed, and indices are computed on the device.
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, compared: Mapping[str, Compared]) -> None:
        """Overwrites the oldest keys of every queue with a step's keys, heads in their order."""
        key_HND = torch.stack([head.other_BVD.flatten(0, 1) for head in compared.values()])
        num_keys, size = key_HND.shape[1], self.rows.shape[1]
        # Indices wrap around. They are distinct: the spec refuses a queue too short for a step.
        index_N = (self.position + torch.arange(num_keys, device=self.rows.device)) % size
        self.rows.index_copy_(1, index_N, key_HND.to(self.rows.dtype))
        self.position.copy_((self.position + num_keys) % size)


class SimCLR(SelfSupervisedMethod, ContrastiveMethod):
    """NT-Xent, Chen et al. 2020, arXiv:2002.05709, eq. 1, in each head."""

    spec: specs.SimCLRSpec

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()


class MoCo(SelfSupervisedMethod):
    """MoCo, He et al. 2020, arXiv:1911.05722, eq. 1, averaged over all pairs of different views.

    Each view is a query for the keys of its item's other views.
    """

    spec: specs.MoCoSpec

    def __init__(self, spec: specs.MoCoSpec, problem: Problem) -> None:
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


class SimSiam(SelfSupervisedMethod):
    """SimSiam, Chen and He 2021, arXiv:2011.10566, eq. 4, in each head."""

    def make_head(self, head: str, width: int) -> SimSiamHead:
        dims = self.spec.model_dump(include={"dim", "hidden", "predictor_hidden"})
        return SimSiamHead(width, **dims)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns minus the mean cosine per head. z_by_head[head] is [prediction | projection]."""
        losses, compared = {}, {}
        for head, z_BVD in z_by_head.items():
            prediction_BVD, projection_BVD = z_BVD.chunk(2, dim=2)
            compared[head] = compare(prediction_BVD, projection_BVD)
            losses[head] = simsiam(prediction_BVD, projection_BVD)
        return MethodOutput(losses, compared)


class BarlowTwins(SelfSupervisedMethod):
    """Barlow Twins, Zbontar et al. 2021, arXiv:2103.03230, eq. 1, in each head."""

    spec: specs.BarlowTwinsSpec

    def make_head(self, head: str, width: int) -> BatchNormProjector:
        return BatchNormProjector(width, dim=self.spec.dim, hidden=self.spec.hidden)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the scalar loss of each head. z_by_head[head] is z_BVD, projections."""
        losses = {
            head: barlow_twins(z_BVD, off_diagonal=self.spec.off_diagonal)
            for head, z_BVD in z_by_head.items()
        }
        return MethodOutput(losses, {head: compare(z_BVD) for head, z_BVD in z_by_head.items()})
