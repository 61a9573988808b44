"""Common parts of the self-supervised methods: numbered heads, spec fields, queues of keys."""

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.data.batch import Problem
from mtcon_ray.losses.numeric import Compared
from mtcon_ray.methods.base import Method, SeveralViewsSpec


class SelfSupervisedSpec(SeveralViewsSpec):
    """Fields of methods with a loss between views of an item, in one or several heads."""

    uses_labels: ClassVar[bool] = False
    num_heads: int = Field(
        1, ge=1, le=64, description="projection heads, alike except for their initial weights"
    )


def number_heads(count: int) -> tuple[str, ...]:
    """Returns head names: `instance` for a single head, else `instance-1`, `instance-2`, ..."""
    return ("instance",) if count == 1 else tuple(f"instance-{i + 1}" for i in range(count))


class SelfSupervisedMethod(Method):
    """Base of methods with a loss between views of an item in each of `num_heads` heads."""

    spec: SelfSupervisedSpec

    def name_heads(self) -> tuple[str, ...]:
        return number_heads(self.spec.num_heads)


class QueueSpec(SelfSupervisedSpec):
    """Fields of methods with a momentum encoder (teacher) and a queue of its keys."""

    teacher_momentum: float = Field(
        0.99, ge=0, lt=1, description="MoCo: momentum m of the teacher, m * teacher + (1 - m) * net"
    )
    queue_size: int = Field(
        4096,
        ge=2,
        le=10_000_000,
        description="MoCo: keys in the queue of each head, at least the keys of a step",
    )

    def check_queue(self, problem: Problem) -> None:
        """Raises ValueError if the queue is shorter than the keys of a step."""
        keys = problem.batch_size * problem.num_views
        if self.queue_size < keys:
            raise ValueError(
                f"queue_size must be at least train.batch_size x views.num_views, the {keys} keys "
                f"of a step, got {self.queue_size}; raise it or lower train.batch_size"
            )


class ProjectorSpec(SelfSupervisedSpec):
    """Fields of methods with projectors of three layers with batch norm."""

    dim: int = Field(
        2048,
        ge=2,
        le=65536,
        description="SimSiam, Barlow Twins: width of the projector's output. It replaces "
        "model.head_dim",
    )
    hidden: int = Field(
        2048,
        ge=2,
        le=65536,
        description="SimSiam, Barlow Twins: width of the projector's hidden layers. It replaces "
        "model.head_hidden",
    )

    @property
    def has_batch_norm(self) -> bool:
        return True


class PredictorSpec(ProjectorSpec):
    """Fields of methods with a predictor on each projector."""

    predictor_hidden: int = Field(
        512, ge=2, le=65536, description="SimSiam: width of the predictor's hidden layer"
    )


class RedundancySpec(ProjectorSpec):
    """Fields of methods with a loss on cross-correlations."""

    off_diagonal: float = Field(
        5e-3, ge=0, le=1000, description="Barlow Twins: lambda, weight of off-diagonal correlations"
    )


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
        assert num_keys <= size, (num_keys, size)
        # Indices wrap around. They are distinct, because a step's keys fit into the queue.
        index_N = (self.position + torch.arange(num_keys, device=self.rows.device)) % size
        self.rows.index_copy_(1, index_N, key_HND.to(self.rows.dtype))
        self.position.copy_((self.position + num_keys) % size)
