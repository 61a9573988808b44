"""Common parts of the methods with AMCL's learned temperature for every pair of embeddings."""

from collections.abc import Mapping
from functools import partial

import torch
from pydantic import Field
from torch import Tensor

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Problem
from mtcon_ray.losses.amcl import Form, adapt
from mtcon_ray.losses.learned_temperature import (
    RELEASED_TOP_K,
    TAU_MAX,
    TAU_MIN,
    Adaptive,
    Regulariser,
    TemperatureNet,
    num_hardest,
)
from mtcon_ray.methods.base import MethodOutput, Temperature, compare
from mtcon_ray.methods.self_supervised import SelfSupervisedSpec

# A temperature within this relative distance of a bound counts as being at the bound.
NEAR = 0.01


class AdaptiveSpec(SelfSupervisedSpec):
    """Fields of methods with AMCL's temperatures."""

    tau_min: Temperature = Field(
        TAU_MIN,
        description="lowest temperature of AMCL. Most positives reach it and then have losses of "
        "up to 1 / tau_min, so 0.05, or train.max_grad_norm 1, is safer than the paper's 1e-5",
    )
    tau_max: Temperature = Field(TAU_MAX, description="highest temperature of AMCL")
    top_k: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="number of AMCL's hardest negatives per anchor in the loss, at most as many as "
        "there are (null: 1 as printed, 100 as released)",
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if self.tau_min >= self.tau_max:
            raise ValueError(
                f"tau_min must be below tau_max, got {self.tau_min} and {self.tau_max}"
            )


def seeded_temperature_net(width: int, seed: int) -> TemperatureNet:
    """Returns a network with weights from the seed. Keeps the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TemperatureNet(width)


def adapt_heads(
    z_by_head: Mapping[str, Tensor],
    adaptive: Adaptive,
    *,
    form: Form,
    queue_HKD: Tensor | None = None,
    off_diagonal: float = 5e-3,
) -> MethodOutput:
    """Returns the scalar loss of each head. z_by_head[head] is z_BVD as in `losses.amcl`.

    The details are the shares of each head's temperatures within 1 % of the two bounds.
    """
    losses, compared, temperatures = {}, {}, {}
    for i, (head, z_BVD) in enumerate(z_by_head.items()):
        is_two_sided = form in ("moco", "simsiam")
        query_BVD, key_BVD = z_BVD.chunk(2, dim=2) if is_two_sided else (z_BVD, z_BVD)
        compared[head] = compare(query_BVD, key_BVD)
        queue = None if queue_HKD is None else queue_HKD[i].to(z_BVD.dtype)
        losses[head], temperatures[head] = adapt(
            z_BVD, adaptive, form=form, queue=queue, off_diagonal=off_diagonal
        )
    shares = partial(bound_shares, temperatures, adaptive.tau_min, adaptive.tau_max)
    return MethodOutput(losses, compared, details=shares)


def bound_shares(
    tau_by_head: Mapping[str, Tensor], tau_min: float, tau_max: float
) -> dict[str, Tensor]:
    """Returns by metric name the shares of each head's temperatures [P] within NEAR of a bound."""
    shares, names = {}, metrics.slugs(tau_by_head)
    for head, tau_P in tau_by_head.items():
        low, high = tau_P <= tau_min * (1 + NEAR), tau_P >= tau_max * (1 - NEAR)
        shares[metrics.temperature_at("min", names[head])] = low.float().mean()
        shares[metrics.temperature_at("max", names[head])] = high.float().mean()
    return shares


def top_k_warning(top_k: int | None, regulariser: Regulariser = "printed") -> dict[str, str]:
    """Returns a warning by field name if AMCL has one negative per anchor, else an empty mapping.

    With one negative per anchor AMCL collapses.
    """
    if num_hardest(top_k, regulariser) > 1:
        return {}
    return {
        "top_k": "method.top_k must be well above 1 for AMCL to tell images apart, got "
        f"{'null, which is 1' if top_k is None else top_k}; with one negative per anchor the heads "
        f"collapse (cosine/random reaches cosine/positive); set it to {RELEASED_TOP_K}, as released"
    }
