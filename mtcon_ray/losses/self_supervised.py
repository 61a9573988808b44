"""Losses of systems that look at no label, with fixed temperatures (METHODS 1, 11.11).

Positives are the views of one item. Rows of `query`, `key` and `queue` are unit vectors; targets
(keys, projections) get no gradient.
"""

from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.precision import in_full_precision


@in_full_precision
def moco(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Mean over rows of -log softmax of the key among itself and the queue, in nats.

    query [N, D] and its keys [N, D]; queue [K, D] holds the negatives. He 2020,
    arXiv:1911.05722, eq. 1. Raises ValueError for other shapes and a temperature not above 0.
    """
    check_pairs(query, key, "query", "key")
    check_temperature(temperature)
    if queue.ndim != 2 or queue.shape[1] != query.shape[1] or len(queue) == 0:
        raise ValueError(f"queue must have shape [K, {query.shape[1]}], got {list(queue.shape)}")
    positive_N1 = (query * key.detach()).sum(dim=1, keepdim=True)
    negative_NK = query @ queue.detach().T
    logits = torch.cat([positive_N1, negative_NK], dim=1) / temperature
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()


@in_full_precision
def info_nce(query: Tensor, key: Tensor, *, temperature: float) -> Tensor:
    """Mean over rows of -log softmax of the row's own key among all keys, in nats.

    query, key [N, D]; both get a gradient, so detach keys that should have none. AMCL eq. 1.4,
    and what MoCo v3 symmetrises.
    """
    check_pairs(query, key, "query", "key")
    check_temperature(temperature)
    logits_NN = query @ key.T / temperature
    return (logits_NN.logsumexp(dim=1) - logits_NN.diagonal()).mean()


@in_full_precision
def decoupled_nt_xent(z: Tensor, *, temperature: float) -> Tensor:
    """NT-Xent with other items' rows alone in the denominator, in nats; it may be negative.

    z [B, V, D], averaged over the V - 1 other views of each anchor. AMCL eq. 1.1. Raises
    ValueError below two items or two views.
    """
    check_views(z, least_items=2)
    check_temperature(temperature)
    rows_ND = z.flatten(0, 1)
    logits_NN = (rows_ND @ rows_ND.T / temperature).masked_fill(same_item(z), -torch.inf)
    positive_BVP = (z[:, :, None] * other_views(z)).sum(dim=3) / temperature
    return logits_NN.logsumexp(dim=1).mean() - positive_BVP.mean()


@in_full_precision
def simsiam(prediction: Tensor, projection: Tensor) -> Tensor:
    """Minus the mean cosine between each view's prediction and the other views' projections.

    prediction, projection [B, V, D], any lengths; in [-1, 1]. Chen 2021, arXiv:2011.10566, eq. 4.
    """
    check_views(prediction, "prediction")
    check_pairs(prediction, projection, "prediction", "projection")
    target_BVPD = other_views(projection.detach())
    return -F.cosine_similarity(prediction[:, :, None], target_BVPD, dim=3).mean()


@in_full_precision
def barlow_twins(
    z: Tensor, *, off_diagonal: float = 5e-3, eps: float = 1e-5, unbiased: bool = False
) -> Tensor:
    """Squared distance of the views' cross-correlation from the identity, mean over view pairs.

    z [B, V, D], standardised here over the items; entries off the diagonal count `off_diagonal`
    (lambda) times. Zbontar 2021, arXiv:2103.03230, eq. 1. Raises ValueError below two items or
    two views.
    """
    losses = [
        (1 - c_DD.diagonal()).square().sum() + off_diagonal * off_diagonal_sum(c_DD.square())
        for c_DD in cross_correlations(z, eps=eps, unbiased=unbiased)
    ]
    return torch.stack(losses).mean()


def cross_correlations(z: Tensor, *, eps: float, unbiased: bool) -> list[Tensor]:
    """For each pair of views, [D, D] correlations over the items of their standardised columns.

    The variance is the biased one plus eps, as of batch norm: a constant column correlates 0.
    With unbiased=True it is the unbiased one, and the diagonal reaches (B - 1) / B at most.
    """
    check_views(z, least_items=2)
    variance_1VD, mean_1VD = torch.var_mean(z, dim=0, correction=int(unbiased), keepdim=True)
    hat_BVD = (z - mean_1VD) * (variance_1VD + eps).rsqrt()
    pairs = combinations(hat_BVD.unbind(dim=1), 2)
    return [first_BD.T @ second_BD / len(z) for first_BD, second_BD in pairs]


def off_diagonal_sum(x_DD: Tensor) -> Tensor:
    """Sum of all entries that are not on the diagonal."""
    diagonal_DD = torch.eye(len(x_DD), dtype=torch.bool, device=x_DD.device)
    return x_DD.masked_fill(diagonal_DD, 0).sum()


def other_views(z_BVD: Tensor) -> Tensor:
    """For each row the other views of its item, [B, V, V - 1, D]."""
    return torch.stack([z_BVD.roll(-s, dims=1) for s in range(1, z_BVD.shape[1])], dim=2)


def same_item(z_BVD: Tensor) -> Tensor:
    """Which pairs of the N = B * V rows are of one item, bool [N, N]."""
    B, V, _ = z_BVD.shape
    item_N = torch.arange(B, device=z_BVD.device).repeat_interleave(V)
    return item_N[:, None] == item_N


def check_views(z: Tensor, name: str = "z", *, least_items: int = 1) -> None:
    """Raises ValueError unless z is [B, V, D] with at least two views and so many items."""
    if z.ndim != 3:
        raise ValueError(f"{name} must have shape [B, V, D], got {list(z.shape)}")
    if z.shape[0] < least_items or z.shape[1] < 2:
        raise ValueError(
            f"{name} must hold at least {least_items} item(s) in two views, got shape "
            f"{list(z.shape)}"
        )


def check_pairs(first: Tensor, second: Tensor, name: str, other: str) -> None:
    """Raises ValueError unless the shapes are equal and there is a row."""
    if first.shape != second.shape or first.ndim < 2 or len(first) == 0:
        raise ValueError(
            f"{name} and {other} must have the same shape with at least one row, got "
            f"{list(first.shape)} and {list(second.shape)}"
        )


def check_temperature(temperature: float) -> None:
    """Raises ValueError unless it is positive and finite."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive, got {temperature}")
