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
from mtcon_ray.losses.self_supervised import barlow_twins, moco, simsiam
from mtcon_ray.methods.base import ContrastiveMethod, Method, MethodOutput, compare
from mtcon_ray.models.network import BatchNormProjector, SimSiamHead
from mtcon_ray.spec.methods import self_supervised as specs
from mtcon_ray.spec.problem import Problem


class SelfSupervisedMethod(Method):
    """Base of methods with a loss between views of an item in each of `num_heads` heads.

    `is_two_sided`: True if rows have two parts, [query | key] or [prediction | projection].
    """

    spec: specs.SelfSupervisedSpec
    is_two_sided: bool = False
    queues: "KeyQueues"  # only with a teacher, see `add_queues`

    @property
    def instance_heads(self) -> tuple[str, ...]:
        """Names of the projection heads: `instance`, or `instance-1`, `instance-2`, ..."""
        count = self.spec.num_heads
        return ("instance",) if count == 1 else tuple(f"instance-{i + 1}" for i in range(count))

    def name_heads(self) -> tuple[str, ...]:
        return self.instance_heads

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the scalar loss of each head. z_by_head[head] is z_BVD."""
        losses = {h: self.head_loss(z_BVD, i) for i, (h, z_BVD) in enumerate(z_by_head.items())}
        parts = 2 if self.is_two_sided else 1
        sides = {head: z_BVD.chunk(parts, dim=2) for head, z_BVD in z_by_head.items()}
        return MethodOutput(losses, {head: compare(x[0], x[-1]) for head, x in sides.items()})

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        """Returns the scalar loss of a head, given its rows and its index."""
        raise NotImplementedError

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

    def __init__(self, num_heads: int, size: int, width: int, *, seed: int) -> None:
        super().__init__()
        rows = torch.empty(num_heads, size, width)
        if not rows.is_meta:  # there, in a plan, the draw would import torch's compiler
            rows = F.normalize(rows.normal_(generator=torch.Generator().manual_seed(seed)), dim=2)
        self.rows = nn.Buffer(rows)
        # A tensor, not an int: it is checkpointed, and indices are computed on the device.
        self.position = nn.Buffer(torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, compared: Mapping[str, Compared]) -> None:
        """Overwrites the oldest keys of every queue with a step's keys, heads in their order."""
        key_HND = torch.stack([head.other_BVD.flatten(0, 1) for head in compared.values()])
        num_keys, size = key_HND.shape[1], self.rows.shape[1]
        # Indices wrap around. They are distinct: the spec refuses a queue too short for a step.
        index_N = (self.position + torch.arange(num_keys, device=self.rows.device)) % size
        self.rows.index_copy_(1, index_N, key_HND.to(self.rows.dtype))
        self.position.copy_((self.position + num_keys) % size)


class SimCLR(ContrastiveMethod, SelfSupervisedMethod):
    """NT-Xent, Chen et al. 2020, arXiv:2002.05709, eq. 1, in each head."""

    spec: specs.SimCLRSpec

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()


class MoCo(SelfSupervisedMethod):
    """MoCo, He et al. 2020, arXiv:1911.05722, eq. 1, averaged over all pairs of different views.

    Each view is a query for the keys of its item's other views.
    """

    spec: specs.MoCoSpec
    is_two_sided = True

    def __init__(self, spec: specs.MoCoSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.add_queues(spec)

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        """Returns a head's loss in nats. z_BVD has unit rows [query | key]."""
        query_BVD, key_BVD = z_BVD.chunk(2, dim=2)
        queue_KD = self.queues.rows[index].to(z_BVD.dtype)
        return moco(query_BVD, key_BVD, queue_KD, temperature=self.spec.temperature)


class SimSiam(SelfSupervisedMethod):
    """SimSiam, Chen and He 2021, arXiv:2011.10566, eq. 4, in each head."""

    is_two_sided = True

    def make_head(self, head: str, width: int) -> SimSiamHead:
        dims = self.spec.model_dump(include={"dim", "hidden", "predictor_hidden"})
        return SimSiamHead(width, **dims)

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        """Returns minus the mean cosine. z_BVD has rows [prediction | projection]."""
        return simsiam(*z_BVD.chunk(2, dim=2))


class BarlowTwins(SelfSupervisedMethod):
    """Barlow Twins, Zbontar et al. 2021, arXiv:2103.03230, eq. 1, in each head."""

    spec: specs.BarlowTwinsSpec

    def make_head(self, head: str, width: int) -> BatchNormProjector:
        return BatchNormProjector(width, dim=self.spec.dim, hidden=self.spec.hidden)

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        """Returns the scalar loss of a head. z_BVD are projections."""
        return barlow_twins(z_BVD, off_diagonal=self.spec.off_diagonal)
