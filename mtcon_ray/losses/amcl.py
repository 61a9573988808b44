"""AMCL's losses: a learned temperature for every pair of embeddings, in five forms.

Wang et al. 2023, arXiv:2310.05615. Equations 1.1 to 2.4 are numbered as on the authors' poster at
ECCV 2024. The temperature of a pair and its regulariser are, by eq. 3,

    tau(z, z') = tau_min + (tau_max - tau_min) / (1 + exp(phi(z) . phi(z')))
    Omega(tau) = d'/2 log tau + 1/tau

phi is the temperature network, which all heads and all terms share, and d' the width of the
embeddings. beta * Omega is added for positives and subtracted for negatives. The logsumexp over the
negatives is replaced by their largest term, or by the mean of the top_k largest. With beta = 1,
-cos / tau + Omega is the negative log-likelihood of a Gaussian of variance tau around the positive,
up to a constant.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import NamedTuple

import torch
import torch.nn.functional as F
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from mtcon_ray.base.registry import Weight
from mtcon_ray.losses.numeric import check_rows, in_full_precision
from mtcon_ray.losses.self_supervised import cross_correlations, off_diagonal_sum, other_views
from mtcon_ray.spec.methods.base import Temperature
from mtcon_ray.spec.methods.self_supervised import TAU_MAX, TAU_MIN, Form, TopK, check_bounds

# Forms with rows of two parts: [query | key] or [prediction | projection].
TWO_SIDED = ("moco", "simsiam")


class TemperatureNet(nn.Sequential):
    """The temperature network phi, [..., width] to [..., width]: Linear-ReLU-Linear."""

    def __init__(self, width: int, *, hidden: int = 128) -> None:
        super().__init__(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


@dataclass(frozen=True)
class Adaptive:
    """The temperature network with the settings of AMCL's losses.

    `form` and `off_diagonal` are as in `amcl`. In the forms simclr, moco and infonce, an anchor is
    repelled by the mean over its `top_k` candidates of largest cosine (or all candidates, if there
    are fewer).

    If beta is below the cosine of a positive pair, the loss of the pair increases with tau. Its
    best temperature is then tau_min, and its loss about -cosine / tau_min. A tau_min of 0.05 or a
    beta of 1 is safer.

    Raises ValueError unless tau_min < tau_max, and for values that the fields of the spec refuse.
    """

    temperature_net: Callable[[Tensor], Tensor]
    beta: Weight = 1e-4
    tau_min: Temperature = TAU_MIN
    tau_max: Temperature = TAU_MAX
    top_k: TopK = 1
    form: Form = "simclr"
    off_diagonal: float = 5e-3

    def __post_init__(self) -> None:
        check_bounds(self.tau_min, self.tau_max)

    def temperature(self, score: Tensor) -> Tensor:
        """Returns tau of scores phi . phi, of any shape: near tau_min for high, tau_max for low."""
        # sigmoid(-score) is 1 / (1 + exp(score)) without overflow of the exponential.
        return self.tau_min + (self.tau_max - self.tau_min) * torch.sigmoid(-score)


def omega(tau: Tensor, width: int) -> Tensor:
    """Returns width/2 log tau + 1/tau, with the minimum at tau = 2 / width."""
    return width / 2 * tau.log() + 1 / tau


class Pairs(NamedTuple):
    """Pairs of N anchors with P other rows each: cosines, and scores phi . phi."""

    similarity_NP: Tensor
    score_NP: Tensor


def amcl(
    z_by_head: Mapping[str, Tensor],
    *,
    form: Form,
    temperature_net: Callable[[Tensor], Tensor],
    beta: float,
    tau_min: float = TAU_MIN,
    tau_max: float = TAU_MAX,
    top_k: int = 1,
    queue_by_head: Mapping[str, Tensor] | None = None,
    off_diagonal: float = 5e-3,
) -> Tensor:
    """Returns the sum over heads of AMCL's loss in the given form, a scalar.

    z_by_head[head] depends on the form:

    simclr, infonce: unit rows [B, V, D].
    barlow: projections [B, V, D], not normalised.
    simsiam: [prediction | projection] along the last axis, [B, V, 2D], of any lengths.
    moco: [query | key] along the last axis, [B, V, 2D], both unit rows. queue_by_head[head] holds
        unit rows [K, D].

    `temperature_net` maps [..., D] to vectors of a common width. In "barlow" it maps columns,
    [..., B]. `off_diagonal` is lambda of Barlow Twins. All other arguments are as in `Adaptive`.

    Raises ValueError for an unknown form, no heads, missing queues, embeddings or queues with nan
    or inf, wrong shapes, and invalid settings of `Adaptive`.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)  # two items, two equal views each
    >>> loss = amcl({"a": z, "b": z}, form="simclr", temperature_net=torch.nn.Identity(), beta=0)
    >>> round(loss.item(), 4)  # twice -1 / tau(z, z): its score is 1
    -3.7182
    """
    bounds = {"tau_min": tau_min, "tau_max": tau_max}  # errors name arguments with keywords alone
    adaptive = Adaptive(
        temperature_net, beta=beta, **bounds, top_k=top_k, form=form, off_diagonal=off_diagonal
    )
    if not z_by_head:
        raise ValueError("z_by_head must hold at least one head, got none")
    queues = queue_by_head or {}
    if form == "moco" and not z_by_head.keys() <= queues.keys():
        raise ValueError("queue_by_head must hold a queue [K, D] for each head in the form 'moco'")
    losses = []
    for head, z in z_by_head.items():
        check_rows(z, f"z_by_head[{head!r}]")
        if form == "moco":
            check_rows(queues[head], f"queue_by_head[{head!r}]")
        losses.append(adapt(z, adaptive, queue=queues.get(head)))
    return torch.stack(losses).sum()


@in_full_precision
def adapt(z_BVD: Tensor, adaptive: Adaptive, *, queue: Tensor | None = None) -> Tensor:
    """Returns the scalar loss of a head. z and the errors are as in `amcl`."""
    is_two_sided = adaptive.form in TWO_SIDED
    if z_BVD.ndim != 3:
        raise ValueError(f"z must have shape [B, V, D], got {list(z_BVD.shape)}")
    least, shape = 1 if is_two_sided else 2, list(z_BVD.shape)
    if shape[0] < least or shape[1] < 2:
        raise ValueError(f"z must hold at least {least} item(s) in two views, got shape {shape}")
    if adaptive.form == "barlow":
        return adapt_barlow(z_BVD, adaptive)
    if not is_two_sided:
        return adapt_views(z_BVD, adaptive)
    if shape[2] % 2:
        raise ValueError(f"z must have shape [B, V, 2D] in this form, got {shape}")
    first_BVD, second_BVD = z_BVD.chunk(2, dim=2)
    if adaptive.form == "simsiam":
        return adapt_simsiam(first_BVD, second_BVD, adaptive)
    assert queue is not None
    D = shape[2] // 2
    if queue.ndim != 2 or queue.shape[1] != D or len(queue) == 0:
        raise ValueError(f"queue must have shape [K, {D}], got {list(queue.shape)}")
    return adapt_moco(first_BVD, second_BVD, queue, adaptive)


def adapt_views(z_BVD: Tensor, adaptive: Adaptive) -> Tensor:
    """Returns eq. 2.1 within a batch (simclr), or eq. 2.4 (infonce).

    z_BVD has unit rows. Every row is an anchor, its positives are its other views. In eq. 2.4
    positives are also among the candidates for repulsion.
    """
    B, V, D = z_BVD.shape
    phi_BVD = adaptive.temperature_net(z_BVD)
    positives = _aligned(z_BVD, other_views(z_BVD), phi_BVD, other_views(phi_BVD))
    z_ND, phi_ND = z_BVD.flatten(0, 1), phi_BVD.flatten(0, 1)
    # At -inf a row itself, and in eq. 2.1 its positives, cannot be among the hardest candidates.
    num_excluded = 1 if adaptive.form == "infonce" else V
    block_N = torch.arange(B * V, device=z_BVD.device) // num_excluded
    is_excluded_NN = block_N[:, None] == block_N
    candidates = Pairs((z_ND @ z_ND.T).masked_fill(is_excluded_NN, -torch.inf), phi_ND @ phi_ND.T)
    return _contrast(positives, candidates, B * V - num_excluded, adaptive, D)


def adapt_moco(query_BVD: Tensor, key_BVD: Tensor, queue_KD: Tensor, adaptive: Adaptive) -> Tensor:
    """Returns eq. 2.1 with the keys of other views as positives and the queue as negatives.

    All rows are unit vectors. Keys and queue get no gradient.
    """
    key_BVPD, queue_KD = other_views(key_BVD.detach()), queue_KD.detach()
    phi = adaptive.temperature_net
    phi_BVD = phi(query_BVD)
    positives = _aligned(query_BVD, key_BVPD, phi_BVD, phi(key_BVPD))
    query_ND, phi_ND = query_BVD.flatten(0, 1), phi_BVD.flatten(0, 1)
    candidates = Pairs(query_ND @ queue_KD.T, phi_ND @ phi(queue_KD).T)
    return _contrast(positives, candidates, len(queue_KD), adaptive, query_BVD.shape[2])


def adapt_simsiam(prediction_BVD: Tensor, projection_BVD: Tensor, adaptive: Adaptive) -> Tensor:
    """Returns eq. 2.2: minus the cosine over the temperature, plus the regulariser.

    Predictions and projections are [B, V, D] of any length. Projections get no gradient.
    """
    p_BVD = F.normalize(prediction_BVD, dim=2)
    target_BVPD = other_views(F.normalize(projection_BVD.detach(), dim=2))
    phi = adaptive.temperature_net
    similarity_NP, score_NP = _aligned(p_BVD, target_BVPD, phi(p_BVD), phi(target_BVPD))
    tau_NP = adaptive.temperature(score_NP)
    # Eq. 2.2 halves the two cosine terms but not the two regularisers. The mean over both ordered
    # pairs of views halves everything, hence the factor 2.
    penalty_NP = 2 * adaptive.beta * omega(tau_NP, p_BVD.shape[2])
    return (penalty_NP - similarity_NP / tau_NP).mean()


def adapt_barlow(z_BVD: Tensor, adaptive: Adaptive) -> Tensor:
    """Returns eq. 2.3, averaged over pairs of views, with `off_diagonal` as in `barlow_twins`.

    A temperature belongs to a pair of columns, which are vectors over the B items. phi gets the
    columns unscaled, as in the authors' code: temperatures depend on the order of the items, and
    long columns drive them to a bound.
    """
    phi_VDB = adaptive.temperature_net(z_BVD.permute(1, 2, 0))
    losses = []
    view_pairs = combinations(phi_VDB, 2)
    for c_DD, (first, second) in zip(cross_correlations(z_BVD), view_pairs, strict=True):
        tau_DD = adaptive.temperature(first @ second.T)
        omega_DD = omega(tau_DD, z_BVD.shape[2])
        on = (1 - c_DD.diagonal() / tau_DD.diagonal()).square().sum()
        off = off_diagonal_sum(c_DD.square() / tau_DD)
        penalty = omega_DD.diagonal().sum() - off_diagonal_sum(omega_DD)
        losses.append(on + adaptive.off_diagonal * off + adaptive.beta * penalty)
    return torch.stack(losses).mean()


def _aligned(z_BVD: Tensor, other_BVPD: Tensor, phi_BVD: Tensor, phi_BVPD: Tensor) -> Pairs:
    """Returns the pairs of every row with its own P positives, [B * V, P]."""
    similarity_BVP = (z_BVD[:, :, None] * other_BVPD).sum(dim=3)
    score_BVP = (phi_BVD[:, :, None] * phi_BVPD).sum(dim=3)
    return Pairs(similarity_BVP.flatten(0, 1), score_BVP.flatten(0, 1))


def _contrast(
    positives: Pairs, candidates: Pairs, available: int, adaptive: Adaptive, width: int
) -> Tensor:
    """Returns the mean over anchors of eq. 2.1 or 2.4, averaged over each anchor's positives.

    `available` is the number of an anchor's unmasked candidates (not -inf). The candidates of
    largest cosine repel it.
    """
    tau_NP = adaptive.temperature(positives.score_NP)
    attract_NP = adaptive.beta * omega(tau_NP, width) - positives.similarity_NP / tau_NP
    similarity_NK, index_NK = candidates.similarity_NP.topk(min(adaptive.top_k, available), dim=1)
    tau_NK = adaptive.temperature(candidates.score_NP.gather(1, index_NK))
    omega_N = omega(tau_NK, width).mean(dim=1)
    repel_N = (similarity_NK / tau_NK).mean(dim=1) - adaptive.beta * omega_N
    return attract_NP.mean() + repel_N.mean()
