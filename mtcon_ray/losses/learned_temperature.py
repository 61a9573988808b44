"""AMCL's learned temperature of a pair of embeddings, and its regulariser Omega.

    tau(z, z') = tau_min + (tau_max - tau_min) / (1 + exp(phi(z) . phi(z')))
    Omega(tau) = d'/2 log tau + 1/tau

phi is the temperature network and d' the width of the embeddings. Wang et al. 2023,
arXiv:2310.05615, eq. 3. With beta = 1, -cos / tau + Omega is the negative log-likelihood of a
Gaussian of variance tau around the positive, up to a constant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn

from mtcon_ray.spec.methods.adaptive import TAU_MAX, TAU_MIN, Regulariser


class TemperatureNet(nn.Sequential):
    """The temperature network phi, [..., width] to [..., width]: Linear-ReLU-Linear."""

    def __init__(self, width: int, *, hidden: int = 128) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


@dataclass(frozen=True)
class Adaptive:
    """The temperature network with the settings of AMCL's losses.

    In the forms simclr, moco and infonce, an anchor is repelled by the mean over its `top_k`
    candidates of largest cosine (or all candidates, if there are fewer). The regulariser of these
    candidates is Omega averaged over them ("printed", as in the paper's formula), or the sum of
    log tau + 1/tau over them ("released", as in the authors' code). top_k None is 1 as printed and
    100 as released.

    If beta is below the cosine of a positive pair, the loss of the pair increases with tau. Its
    best temperature is then tau_min, and its loss about -cosine / tau_min. A tau_min of 0.05 or a
    beta of 1 is safer.

    Raises ValueError unless 0 < tau_min < tau_max, beta >= 0 (all finite), top_k is None or at
    least 1, and the regulariser is known.
    """

    temperature_net: Callable[[Tensor], Tensor]
    beta: float = 1e-4
    tau_min: float = TAU_MIN
    tau_max: float = TAU_MAX
    top_k: int | None = None
    regulariser: Regulariser = "printed"

    def __post_init__(self) -> None:
        if not 0 < self.tau_min < self.tau_max < float("inf"):
            raise ValueError(
                f"tau_min and tau_max must satisfy 0 < tau_min < tau_max, got {self.tau_min} and "
                f"{self.tau_max}"
            )
        if not 0 <= self.beta < float("inf"):
            raise ValueError(f"beta must be at least 0, got {self.beta}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.regulariser not in get_args(Regulariser):
            raise ValueError(
                f"regulariser must be 'printed' or 'released', got {self.regulariser!r}"
            )

    def temperature(self, score: Tensor) -> Tensor:
        """Returns tau of scores phi . phi, of any shape: near tau_min for high, tau_max for low."""
        # sigmoid(-score) is 1 / (1 + exp(score)) without overflow of the exponential.
        return self.tau_min + (self.tau_max - self.tau_min) * torch.sigmoid(-score)


def omega(tau: Tensor, width: int) -> Tensor:
    """Returns width/2 log tau + 1/tau, with the minimum at tau = 2 / width."""
    return width / 2 * tau.log() + 1 / tau
