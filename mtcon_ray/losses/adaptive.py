"""How AMCL sets the temperature of a pair of rows, and what it costs (METHODS 11.1).

tau(z, z') = tau_min + (tau_max - tau_min) / (1 + exp(phi(z) . phi(z')))
Omega(tau) = d'/2 log tau + 1/tau
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

Regulariser = Literal["printed", "released"]
TAU_MIN, TAU_MAX = 1e-5, 2.0
RELEASED_TOP_K = 100


class TemperatureNet(nn.Sequential):
    """phi: Linear-ReLU-Linear from and to `width`, over a hidden layer of 128."""

    def __init__(self, width: int, *, hidden: int = 128) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Pairs(NamedTuple):
    """N anchors with P partners each: cosines, and scores phi . phi."""

    similarity_NP: Tensor
    score_NP: Tensor


@dataclass(frozen=True)
class Adaptive:
    """How pairs get their temperatures and what these cost.

    The repelling part of simclr, moco and infonce is a mean over the `top_k` candidates of
    largest similarity (at most as many as there are). Their Omega is, as printed, averaged like
    it, with d'/2; as released, a sum over k of log tau + 1/tau. top_k None is 1 as printed
    (eq. 2.1) and 100 as released.

    While beta is below a pair's similarity the best temperature of a positive is tau_min itself
    and its loss about -similarity / tau_min (METHODS 11.9): tau_min 0.05 or beta 1 is safer.

    Raises ValueError for bounds that are not 0 < tau_min < tau_max, a negative beta, a top_k
    below 1.
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
        """tau of any scores phi . phi: high scores get tau_min, low ones tau_max."""
        return self.tau_min + (self.tau_max - self.tau_min) * torch.sigmoid(-score)

    def omega_of_candidates(self, tau_NK: Tensor, width: int) -> Tensor:
        """What an anchor's k candidates are paid, [N]."""
        if self.regulariser == "printed":
            return omega(tau_NK, width).mean(dim=1)
        return (tau_NK.log() + 1 / tau_NK).sum(dim=1)

    def hardest(self, candidates: Pairs, available: int) -> tuple[Tensor, Tensor]:
        """Similarities and temperatures [N, k] of the candidates of largest similarity."""
        top_k = min(num_hardest(self.top_k, self.regulariser), available)
        similarity_NK, index_NK = candidates.similarity_NP.topk(top_k, dim=1)
        return similarity_NK, self.temperature(candidates.score_NP.gather(1, index_NK))


def num_hardest(top_k: int | None, regulariser: Regulariser) -> int:
    """Returns the candidates that count, for None as printed (eq. 2.1) or as released."""
    return top_k or (1 if regulariser == "printed" else RELEASED_TOP_K)


def omega(tau: Tensor, width: int) -> Tensor:
    """width/2 log tau + 1/tau: least at tau = 2 / width, where width is that of the rows."""
    return width / 2 * tau.log() + 1 / tau
