"""What the methods share that look at no label: heads by number, fields, a queue of keys."""

from collections.abc import Callable, Iterable, Mapping

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mtcon_ray import metrics
from mtcon_ray.data.batch import Problem
from mtcon_ray.losses.adaptive import RELEASED_TOP_K, Regulariser, num_hardest
from mtcon_ray.methods.base import MethodSpec
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network

# A temperature counts as at a bound within this share of it.
NEAR = 0.01


class SelfSupervisedSpec(MethodSpec):
    """Views of an item against each other, in one head or several."""

    num_heads: int = Field(1, ge=1, le=64, description="heads alike in all but their first weights")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.num_views < 2:
            raise ValueError(
                f"views.num_views must be at least 2 for a self-supervised method, "
                f"got {problem.num_views}"
            )


def number_heads(count: int) -> tuple[str, ...]:
    """`instance` for one head, else `instance-1` and so on."""
    return ("instance",) if count == 1 else tuple(f"instance-{i + 1}" for i in range(count))


def bound_shares(
    tau_by_head: Mapping[str, Tensor], tau_min: float, tau_max: float
) -> dict[str, Tensor]:
    """By metric name, the share of each head's temperatures within NEAR of either bound."""
    shares = {}
    for head, tau_P in tau_by_head.items():
        slug = metrics.slug(head)
        low, high = tau_P <= tau_min * (1 + NEAR), tau_P >= tau_max * (1 - NEAR)
        shares[metrics.temperature_at_min(slug)] = low.float().mean()
        shares[metrics.temperature_at_max(slug)] = high.float().mean()
    return shares


def top_k_warning(top_k: int | None, regulariser: Regulariser = "printed") -> dict[str, str]:
    """By the field's name, a warning of the collapse that AMCL with one negative per anchor has."""
    if num_hardest(top_k, regulariser) > 1:
        return {}
    return {
        "top_k": "method.top_k must be well above 1 for AMCL to tell images apart, got "
        f"{'null, which is 1' if top_k is None else top_k}; with one negative per anchor the heads "
        f"collapse (cosine/random reaches cosine/positive); set it to {RELEASED_TOP_K}, as released"
    }


def attach(
    encoder: Encoder, names: Iterable[str], make_head: Callable[[int], nn.Module]
) -> Network:
    """The encoder with a head for each name, made from the encoder's width."""
    return Network(encoder, {name: make_head(encoder.width) for name in names})


class QueueSpec(SelfSupervisedSpec):
    """What a method with a teacher and a queue of its keys has."""

    teacher_momentum: float = Field(
        0.99, ge=0, lt=1, description="MoCo: share of itself that the teacher keeps in a step"
    )
    queue_size: int = Field(
        4096, ge=2, le=10_000_000, description="MoCo: keys kept per head; those of a step must fit"
    )

    def check_queue(self, problem: Problem) -> None:
        """Raises ValueError unless the queue holds the keys of a whole step."""
        keys = problem.batch_size * problem.num_views
        if self.queue_size < keys:
            raise ValueError(
                f"queue_size must be at least train.batch_size x views.num_views, the {keys} keys "
                f"of a step, got {self.queue_size}; raise it or lower train.batch_size"
            )


class ProjectorSpec(SelfSupervisedSpec):
    """What a method with projectors of three layers with batch norm has."""

    dim: int = Field(
        2048,
        ge=2,
        le=65536,
        description="SimSiam, Barlow Twins: width of a projector's output, for model.head_dim",
    )
    hidden: int = Field(
        2048,
        ge=2,
        le=65536,
        description="SimSiam, Barlow Twins: of a projector's hidden layers, for model.head_hidden",
    )

    @property
    def has_batch_norm(self) -> bool:
        return True


class PredictorSpec(ProjectorSpec):
    """What a method with a predictor on each projector has."""

    predictor_hidden: int = Field(
        512, ge=2, le=65536, description="SimSiam: width of the predictor's hidden layer"
    )


class RedundancySpec(ProjectorSpec):
    """What a method on cross-correlations has."""

    off_diagonal: float = Field(
        5e-3, ge=0, le=1000, description="Barlow Twins: lambda, of correlations between columns"
    )


def check_several_items(problem: Problem) -> None:
    """Raises ValueError for a batch of one item, which has no statistics and no negatives."""
    if problem.batch_size < 2:
        raise ValueError(
            f"train.batch_size must be at least 2 for batch statistics and negatives, "
            f"got {problem.batch_size}"
        )


class KeyQueues(nn.Module):
    """The last keys of each head, first in first out; at first random unit rows from the seed.

    rows is [H, K, D], head by head; position is where the next key goes.
    """

    rows: Tensor
    position: Tensor

    def __init__(self, num_heads: int, size: int, width: int, *, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        rows = torch.randn(num_heads, size, width, generator=generator)
        self.register_buffer("rows", F.normalize(rows, dim=2))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))
        self._held_HND: Tensor | None = None

    def hold(self, z_by_head: Mapping[str, Tensor]) -> None:
        """Keep the keys of all heads' rows [query | key], in order, for the next `push`."""
        keys = [z_BVD.detach().chunk(2, dim=2)[1].flatten(0, 1) for z_BVD in z_by_head.values()]
        self._held_HND = torch.stack(keys)

    @torch.no_grad()
    def push(self) -> None:
        """Put every head's held keys in the place of as many oldest."""
        assert self._held_HND is not None
        num_keys, size = self._held_HND.shape[1], self.rows.shape[1]
        assert num_keys <= size, (num_keys, size)
        index_N = (self.position + torch.arange(num_keys, device=self.rows.device)) % size
        self.rows.index_copy_(1, index_N, self._held_HND.to(self.rows.dtype))
        self.position.copy_((self.position + num_keys) % size)
