"""Common parts of the self-supervised methods: numbered heads, spec fields, queues of keys."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.losses.numeric import Compared
from mtcon_ray.methods.base import Method, MethodOutput
from mtcon_ray.spec.methods.self_supervised import QueueSpec, SelfSupervisedSpec


class SelfSupervisedMethod(Method):
    """Base of methods with a loss between views of an item in each of `num_heads` heads."""

    spec: SelfSupervisedSpec
    queues: "KeyQueues"  # only with a teacher, see `add_queues`

    @property
    def instance_heads(self) -> tuple[str, ...]:
        """Names of the projection heads: `instance`, or `instance-1`, `instance-2`, ..."""
        count = self.spec.num_heads
        return ("instance",) if count == 1 else tuple(f"instance-{i + 1}" for i in range(count))

    def name_heads(self) -> tuple[str, ...]:
        return self.instance_heads

    def add_queues(self, spec: QueueSpec) -> None:
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
