"""AMCL's losses: a learned temperature for every pair of embeddings, in five forms.

Wang et al. 2023, arXiv:2310.05615; equations 1.1 to 2.4 are numbered as on the authors' poster at
ECCV 2024. One temperature network serves all heads and all terms. The regulariser beta * Omega
is added for positives and subtracted for negatives. The logsumexp over the negatives is replaced
by their largest term, or by the mean of the top_k largest.
"""

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.checks import check_rows
from mtcon_ray.losses.float32 import in_full_precision
from mtcon_ray.losses.learned_temperature import (
    TAU_MAX,
    TAU_MIN,
    Adaptive,
    Pairs,
    Regulariser,
    omega,
)
from mtcon_ray.losses.self_supervised import (
    check_pairs,
    check_views,
    cross_correlations,
    off_diagonal_sum,
    other_views,
    same_item,
)

Form = Literal["simclr", "moco", "simsiam", "barlow", "infonce"]
FORMS: tuple[Form, ...] = get_args(Form)


class Adapted(NamedTuple):
    """A scalar loss, and all temperatures that it uses, detached and flat."""

    loss: Tensor
    temperatures: Tensor


def amcl(
    z_by_head: Mapping[str, Tensor],
    *,
    form: Form,
    temperature_net: Callable[[Tensor], Tensor],
    beta: float,
    tau_min: float = TAU_MIN,
    tau_max: float = TAU_MAX,
    top_k: int | None = None,
    regulariser: Regulariser = "printed",
    queue_by_head: Mapping[str, Tensor] | None = None,
    off_diagonal: float = 5e-3,
) -> Tensor:
    """Returns the sum over heads of AMCL's loss in one of its five forms, a scalar.

    z_by_head[head] depends on the form:

    simclr, infonce: unit rows [B, V, D].
    barlow: projections [B, V, D], not normalised.
    simsiam: [prediction | projection] along the last axis, [B, V, 2D], of any lengths.
    moco: [query | key] along the last axis, [B, V, 2D], both unit rows; queue_by_head[head] holds
        unit rows [K, D].

    `temperature_net` maps [..., D] to vectors of a common width; in "barlow" it maps columns,
    [..., B]. The other arguments are those of `Adaptive`. `off_diagonal` is lambda of Barlow Twins.

    Raises ValueError for an unknown form, no heads, missing queues, embeddings that are not
    finite, wrong shapes, and settings that `Adaptive` refuses.

    >>> z = torch.eye(2)[:, None].expand(2, 2, 2)  # two items, two equal views each
    >>> loss = amcl({"a": z, "b": z}, form="simclr", temperature_net=torch.nn.Identity(), beta=0)
    >>> round(loss.item(), 4)  # twice -1 / tau(z, z): its score is 1
    -3.7182
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {list(FORMS)}, got {form!r}")
    if not z_by_head:
        raise ValueError("z_by_head must hold at least one head, got none")
    if form == "moco" and (queue_by_head is None or not set(z_by_head) <= set(queue_by_head)):
        raise ValueError("queue_by_head must hold a queue [K, D] for each head in the form 'moco'")
    adaptive = Adaptive(temperature_net, beta, tau_min, tau_max, top_k, regulariser)
    losses = []
    for head, z in z_by_head.items():
        check_rows(z, f"z_by_head[{head!r}]")
        queue = None if queue_by_head is None else queue_by_head.get(head)
        losses.append(adapt(z, adaptive, form=form, queue=queue, off_diagonal=off_diagonal).loss)
    return torch.stack(losses).sum()


def adapt(
    z_BVD: Tensor,
    adaptive: Adaptive,
    *,
    form: Form,
    queue: Tensor | None = None,
    off_diagonal: float = 5e-3,
) -> Adapted:
    """Returns one head's loss and temperatures; z and the errors are those of `amcl`."""
    match form:
        case "simclr":
            return adapt_views(z_BVD, adaptive, positive_is_candidate=False)
        case "infonce":
            return adapt_views(z_BVD, adaptive, positive_is_candidate=True)
        case "barlow":
            return adapt_barlow(z_BVD, adaptive, off_diagonal=off_diagonal)
    check_views(z_BVD)
    if z_BVD.shape[2] % 2:
        raise ValueError(f"z must have shape [B, V, 2D] in this form, got {list(z_BVD.shape)}")
    first_BVD, second_BVD = z_BVD.chunk(2, dim=2)
    if form == "simsiam":
        return adapt_simsiam(first_BVD, second_BVD, adaptive)
    assert queue is not None
    return adapt_moco(first_BVD, second_BVD, queue, adaptive)


@in_full_precision
def adapt_views(z_BVD: Tensor, adaptive: Adaptive, *, positive_is_candidate: bool) -> Adapted:
    """Returns eq. 2.1 within a batch (simclr), or eq. 2.4 (infonce).

    z_BVD has unit rows. Every row is an anchor, its positives are its other views. With
    `positive_is_candidate` (eq. 2.4) positives are also among the candidates for repulsion.
    Raises ValueError below two items or two views.
    """
    check_views(z_BVD, least_items=2)
    z_ND, phi_ND = (x.flatten(0, 1) for x in (z_BVD, adaptive.temperature_net(z_BVD)))
    phi_BVD = phi_ND.view(*z_BVD.shape[:2], -1)
    positives = _aligned(z_BVD, other_views(z_BVD), phi_BVD, other_views(phi_BVD))
    excluded_NN = same_item(z_BVD)
    available = len(z_ND) - z_BVD.shape[1]
    if positive_is_candidate:
        excluded_NN = torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
        available = len(z_ND) - 1
    # At -inf a row itself, and in eq. 2.1 its positives, cannot be among the hardest candidates.
    similarity_NN = (z_ND @ z_ND.T).masked_fill(excluded_NN, -torch.inf)
    candidates = Pairs(similarity_NN, phi_ND @ phi_ND.T)
    return _contrast(positives, candidates, available, adaptive, z_BVD.shape[2])


@in_full_precision
def adapt_moco(query_BVD: Tensor, key_BVD: Tensor, queue_KD: Tensor, adaptive: Adaptive) -> Adapted:
    """Returns eq. 2.1 with the keys of other views as positives and the queue as negatives.

    All rows are unit vectors; keys and queue get no gradient. If V is 1, each key is that of
    another view than its query. Raises ValueError for other shapes and an empty queue.
    """
    check_pairs(query_BVD, key_BVD, "query", "key")
    D = query_BVD.shape[2]
    if queue_KD.ndim != 2 or queue_KD.shape[1] != D or len(queue_KD) == 0:
        raise ValueError(f"queue must have shape [K, {D}], got {list(queue_KD.shape)}")
    key_BVD, queue_KD = key_BVD.detach(), queue_KD.detach()
    key_BVPD = key_BVD[:, :, None] if key_BVD.shape[1] == 1 else other_views(key_BVD)
    phi = adaptive.temperature_net
    phi_BVD = phi(query_BVD)
    positives = _aligned(query_BVD, key_BVPD, phi_BVD, phi(key_BVPD))
    candidates = Pairs(
        query_BVD.flatten(0, 1) @ queue_KD.T, phi_BVD.flatten(0, 1) @ phi(queue_KD).T
    )
    return _contrast(positives, candidates, len(queue_KD), adaptive, D)


@in_full_precision
def adapt_info_nce(query_ND: Tensor, key_ND: Tensor, adaptive: Adaptive) -> Adapted:
    """Returns eq. 2.4 between queries and keys [N, D]: all keys are candidates, also the positive.

    The key of the same index is the positive. Both arguments get a gradient: detach keys that
    should have none. Raises ValueError for other shapes.
    """
    check_pairs(query_ND, key_ND, "query", "key")
    phi_ND, phi_key_ND = adaptive.temperature_net(query_ND), adaptive.temperature_net(key_ND)
    candidates = Pairs(query_ND @ key_ND.T, phi_ND @ phi_key_ND.T)
    positives = Pairs(*(x_NN.diagonal()[:, None] for x_NN in candidates))
    return _contrast(positives, candidates, len(key_ND), adaptive, query_ND.shape[1])


@in_full_precision
def adapt_simsiam(prediction_BVD: Tensor, projection_BVD: Tensor, adaptive: Adaptive) -> Adapted:
    """Returns eq. 2.2: minus the cosine over the temperature, plus the regulariser.

    Predictions and projections are [B, V, D] of any length; projections get no gradient. Raises
    ValueError for other shapes and below two views.
    """
    check_views(prediction_BVD, "prediction")
    check_pairs(prediction_BVD, projection_BVD, "prediction", "projection")
    p_BVD = F.normalize(prediction_BVD, dim=2)
    target_BVPD = other_views(F.normalize(projection_BVD.detach(), dim=2))
    phi = adaptive.temperature_net
    similarity_NP, score_NP = _aligned(p_BVD, target_BVPD, phi(p_BVD), phi(target_BVPD))
    tau_NP = adaptive.temperature(score_NP)
    # Eq. 2.2 halves the two cosine terms but not the two regularisers. The mean over both ordered
    # pairs of views halves everything, hence the factor 2.
    penalty_NP = 2 * adaptive.beta * omega(tau_NP, p_BVD.shape[2])
    return Adapted((penalty_NP - similarity_NP / tau_NP).mean(), tau_NP.detach().flatten())


@in_full_precision
def adapt_barlow(
    z_BVD: Tensor,
    adaptive: Adaptive,
    *,
    off_diagonal: float = 5e-3,
    eps: float = 1e-5,
    unbiased: bool = False,
) -> Adapted:
    """Returns eq. 2.3, averaged over pairs of views; the arguments are those of `barlow_twins`.

    A temperature belongs to a pair of columns, which are vectors over the B items. phi gets the
    columns unscaled, as in the authors' code: temperatures depend on the order of the items, and
    long columns drive them to a bound. Raises ValueError below two items or two views.
    """
    phi_VDB = adaptive.temperature_net(z_BVD.permute(1, 2, 0))
    losses, temperatures = [], []
    correlations = cross_correlations(z_BVD, eps=eps, unbiased=unbiased)
    for c_DD, (first, second) in zip(correlations, combinations(phi_VDB, 2), strict=True):
        tau_DD = adaptive.temperature(first @ second.T)
        omega_DD = omega(tau_DD, z_BVD.shape[2])
        on = (1 - c_DD.diagonal() / tau_DD.diagonal()).square().sum()
        off = off_diagonal_sum(c_DD.square() / tau_DD)
        penalty = omega_DD.diagonal().sum() - off_diagonal_sum(omega_DD)
        losses.append(on + off_diagonal * off + adaptive.beta * penalty)
        temperatures.append(tau_DD.detach().flatten())
    return Adapted(torch.stack(losses).mean(), torch.cat(temperatures))


def _aligned(z_BVD: Tensor, other_BVPD: Tensor, phi_BVD: Tensor, phi_BVPD: Tensor) -> Pairs:
    """Returns the pairs of every row with its own P positives, [B * V, P]."""
    similarity_BVP = (z_BVD[:, :, None] * other_BVPD).sum(dim=3)
    score_BVP = (phi_BVD[:, :, None] * phi_BVPD).sum(dim=3)
    return Pairs(similarity_BVP.flatten(0, 1), score_BVP.flatten(0, 1))


def _contrast(
    positives: Pairs, candidates: Pairs, available: int, adaptive: Adaptive, width: int
) -> Adapted:
    """Returns the mean over anchors of eq. 2.1 or 2.4, averaged over each anchor's positives."""
    tau_NP = adaptive.temperature(positives.score_NP)
    similarity_NK, tau_NK = adaptive.hardest(candidates, available)
    attract_NP = adaptive.beta * omega(tau_NP, width) - positives.similarity_NP / tau_NP
    paid_N = adaptive.beta * adaptive.omega_of_candidates(tau_NK, width)
    repel_N = (similarity_NK / tau_NK).mean(dim=1) - paid_N
    temperatures = torch.cat([tau_NP.detach().flatten(), tau_NK.detach().flatten()])
    return Adapted(attract_NP.mean() + repel_N.mean(), temperatures)
