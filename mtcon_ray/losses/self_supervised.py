"""Self-supervised losses with a fixed temperature.

Positives are the views of one item. Rows of `query`, `key` and `queue` are unit vectors. Unless a
docstring says otherwise, targets (keys, queues, projections) get no gradient (stop-gradient).
AMCL's equations (Wang et al. 2023, arXiv:2310.05615) are numbered as on its poster at ECCV 2024.
"""

from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.float32 import in_full_precision


@in_full_precision
def moco(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Returns MoCo's InfoNCE, a mean over queries in nats: keys are positives, the queue negatives.

    query and key are [N, D], queue is [K, D]. He et al. 2020, arXiv:1911.05722, eq. 1. Raises
    ValueError for other shapes and a temperature that is not positive.
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
    """Returns InfoNCE with in-batch negatives, a mean over queries in nats.

    query and key are [N, D]; the key of the same index is the positive, all keys are in the
    denominator. Both get a gradient: detach keys that should have none. AMCL eq. 1.4; MoCo v3
    (Chen et al. 2021, arXiv:2104.02057) symmetrises it. Raises ValueError for other shapes and a
    temperature that is not positive.
    """
    check_pairs(query, key, "query", "key")
    check_temperature(temperature)
    logits_NN = query @ key.T / temperature
    return (logits_NN.logsumexp(dim=1) - logits_NN.diagonal()).mean()


@in_full_precision
def decoupled_nt_xent(z: Tensor, *, temperature: float) -> Tensor:
    """Returns NT-Xent with only negatives in the denominator, in nats; it may be negative.

    z is [B, V, D]; the loss is averaged over the V - 1 positives of each anchor. AMCL eq. 1.1.
    Raises ValueError below two items or two views and for a temperature that is not positive.
    """
    check_views(z, least_items=2)
    check_temperature(temperature)
    rows_ND = z.flatten(0, 1)
    logits_NN = (rows_ND @ rows_ND.T / temperature).masked_fill(same_item(z), -torch.inf)
    positive_BVP = (z[:, :, None] * other_views(z)).sum(dim=3) / temperature
    return logits_NN.logsumexp(dim=1).mean() - positive_BVP.mean()


@in_full_precision
def simsiam(prediction: Tensor, projection: Tensor) -> Tensor:
    """Returns minus the mean cosine of predictions with other views' projections, in [-1, 1].

    prediction and projection are [B, V, D] of any length. Chen and He 2021, arXiv:2011.10566,
    eq. 4. Raises ValueError for other shapes and below two views.
    """
    check_views(prediction, "prediction")
    check_pairs(prediction, projection, "prediction", "projection")
    target_BVPD = other_views(projection.detach())
    return -F.cosine_similarity(prediction[:, :, None], target_BVPD, dim=3).mean()


@in_full_precision
def barlow_twins(
    z: Tensor, *, off_diagonal: float = 5e-3, eps: float = 1e-5, unbiased: bool = False
) -> Tensor:
    """Returns the loss of Barlow Twins: the cross-correlation's squared distance from the identity.

    z is [B, V, D] and is standardised here over the items; the loss is a mean over pairs of views.
    Off-diagonal entries are weighted by `off_diagonal`, the paper's lambda. eps and unbiased are
    those of `cross_correlations`. Zbontar et al. 2021, arXiv:2103.03230, eq. 1. Raises ValueError
    below two items or two views.
    """
    losses = [
        (1 - c_DD.diagonal()).square().sum() + off_diagonal * off_diagonal_sum(c_DD.square())
        for c_DD in cross_correlations(z, eps=eps, unbiased=unbiased)
    ]
    return torch.stack(losses).mean()


def cross_correlations(z: Tensor, *, eps: float, unbiased: bool) -> list[Tensor]:
    """Returns the cross-correlation [D, D] of each pair of views, over the items.

    Columns are standardised with the biased variance plus eps, as in batch norm; a constant column
    has correlation 0. With unbiased=True (the code of AMCL) the unbiased variance is used, and the
    diagonal is at most (B - 1) / B. Raises ValueError below two items or two views.
    """
    check_views(z, least_items=2)
    variance_1VD, mean_1VD = torch.var_mean(z, dim=0, correction=int(unbiased), keepdim=True)
    hat_BVD = (z - mean_1VD) * (variance_1VD + eps).rsqrt()
    pairs = combinations(hat_BVD.unbind(dim=1), 2)
    return [first_BD.T @ second_BD / len(z) for first_BD, second_BD in pairs]


def off_diagonal_sum(x_DD: Tensor) -> Tensor:
    """Returns the sum of the entries off the diagonal of a [D, D] matrix."""
    # Masked before the sum: subtracting the diagonal's sum would cancel digits.
    diagonal_DD = torch.eye(len(x_DD), dtype=torch.bool, device=x_DD.device)
    return x_DD.masked_fill(diagonal_DD, 0).sum()


def other_views(z_BVD: Tensor) -> Tensor:
    """Returns for each row the other views of its item, [B, V, V - 1, D]."""
    # Rolled by -s, the place of view v holds view v + s, modulo V: each row meets all others once.
    return torch.stack([z_BVD.roll(-s, dims=1) for s in range(1, z_BVD.shape[1])], dim=2)


def same_item(z_BVD: Tensor) -> Tensor:
    """Returns a bool [N, N], N = B * V: True for pairs of rows of the same item."""
    B, V, _ = z_BVD.shape
    item_N = torch.arange(B, device=z_BVD.device).repeat_interleave(V)
    return item_N[:, None] == item_N


def check_views(z: Tensor, name: str = "z", *, least_items: int = 1) -> None:
    """Raises ValueError unless z is [B, V, D] with at least two views and `least_items` items."""
    if z.ndim != 3:
        raise ValueError(f"{name} must have shape [B, V, D], got {list(z.shape)}")
    if z.shape[0] < least_items or z.shape[1] < 2:
        raise ValueError(
            f"{name} must hold at least {least_items} item(s) in two views, got shape "
            f"{list(z.shape)}"
        )


def check_pairs(first: Tensor, second: Tensor, name: str, other: str) -> None:
    """Raises ValueError unless both have the same shape with at least two axes and one row."""
    if first.shape != second.shape or first.ndim < 2 or len(first) == 0:
        raise ValueError(
            f"{name} and {other} must have the same shape with at least one row, got "
            f"{list(first.shape)} and {list(second.shape)}"
        )


def check_temperature(temperature: float) -> None:
    """Raises ValueError unless the temperature is positive and finite."""
    if not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive, got {temperature}")
