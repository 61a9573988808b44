"""Self-supervised losses with a fixed temperature.

Positives are the views of one item. Rows of `query`, `key` and `queue` are unit vectors. Targets
(keys, queues, projections) get no gradient (stop-gradient). Shapes are not checked here: methods
check views and batches before training.
"""

from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.numeric import in_full_precision

# Added to the variances of columns, as in batch norm: a constant column has correlation 0.
EPS = 1e-5


@in_full_precision
def moco(query: Tensor, key: Tensor, queue: Tensor, *, temperature: float) -> Tensor:
    """Returns MoCo's InfoNCE in nats, a mean over pairs of a query and a key of another view.

    query and key are [B, V, D], queue is [K, D] and has the negatives. He et al. 2020,
    arXiv:1911.05722, eq. 1.
    """
    positive_BVP = (query[:, :, None] * other_views(key.detach())).sum(dim=3) / temperature
    negative_BVK = query @ queue.detach().T / temperature
    negative_BV1 = negative_BVK.logsumexp(dim=2, keepdim=True)
    return (torch.logaddexp(positive_BVP, negative_BV1) - positive_BVP).mean()


@in_full_precision
def simsiam(prediction: Tensor, projection: Tensor) -> Tensor:
    """Returns minus the mean cosine of predictions with other views' projections, in [-1, 1].

    prediction and projection are [B, V, D] of any length, with at least two views. Chen and He
    2021, arXiv:2011.10566, eq. 4.
    """
    target_BVPD = other_views(projection.detach())
    return -F.cosine_similarity(prediction[:, :, None], target_BVPD, dim=3).mean()


@in_full_precision
def barlow_twins(z: Tensor, *, off_diagonal: float = 5e-3) -> Tensor:
    """Returns the loss of Barlow Twins: the cross-correlation's squared distance from the identity.

    z is [B, V, D] with at least two views, and is standardised here over the items. The loss is a
    mean over pairs of views. Off-diagonal entries are weighted by `off_diagonal`, the paper's
    lambda. Zbontar et al. 2021, arXiv:2103.03230, eq. 1.
    """
    losses = [
        (1 - c_DD.diagonal()).square().sum() + off_diagonal * off_diagonal_sum(c_DD.square())
        for c_DD in cross_correlations(z)
    ]
    return torch.stack(losses).mean()


def cross_correlations(z: Tensor) -> list[Tensor]:
    """Returns the cross-correlation [D, D] of each pair of views, over the items.

    Columns are standardised with the biased variance, as in batch norm. (The code of AMCL takes the
    unbiased variance, with which the diagonal is at most (B - 1) / B.)
    """
    variance_1VD, mean_1VD = torch.var_mean(z, dim=0, correction=0, keepdim=True)
    hat_BVD = (z - mean_1VD) * (variance_1VD + EPS).rsqrt()
    pairs = combinations(hat_BVD.unbind(dim=1), 2)
    return [first_BD.T @ second_BD / len(z) for first_BD, second_BD in pairs]


def off_diagonal_sum(x_DD: Tensor) -> Tensor:
    """Returns the sum of the entries off the diagonal of a [D, D] matrix."""
    # Masked before the sum: subtracting the diagonal's sum would cancel digits.
    return x_DD.masked_fill(torch.eye(len(x_DD), dtype=torch.bool, device=x_DD.device), 0).sum()


def other_views(z_BVD: Tensor) -> Tensor:
    """Returns for each row the other views of its item, [B, V, V - 1, D]."""
    # Rolled by -s, the place of view v holds view v + s, modulo V: each row meets all others once.
    return torch.stack([z_BVD.roll(-s, dims=1) for s in range(1, z_BVD.shape[1])], dim=2)
