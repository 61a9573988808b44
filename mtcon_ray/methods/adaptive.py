"""Common parts of the methods with AMCL's learned temperature for every pair of embeddings."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from mtcon_ray.base import metrics
from mtcon_ray.losses.amcl import adapt
from mtcon_ray.losses.learned_temperature import Adaptive, TemperatureNet
from mtcon_ray.methods.base import MethodOutput, compare
from mtcon_ray.spec.methods.adaptive import Form

# A temperature within this relative distance of a bound counts as being at the bound.
NEAR = 0.01


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
