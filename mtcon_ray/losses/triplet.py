"""Triplets compared under a condition: masks, fused masks, hinge, regularisers (METHODS 8, 9).

A triplet is three embeddings in the order anchor, far, close: z is [B, 3, D], its rows not
normalised. Half precision is computed in float32, outside of autocast.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.precision import full_precision

ANCHOR, FAR, CLOSE = range(3)
# Keeps the direction of a vector of length 0 finite, as the authors of SCE-Net do.
SHORTEST = 1e-10


def masked_distances(z: Tensor, mask: Tensor) -> Tensor:
    """Distances [B, 2] of the anchor to far and to close, each triplet under its own mask [B, D].

    ||(z_a - z_b) * mask + 1e-6||, the 1e-6 in every component: the distance of equal embeddings
    has a gradient too (Veit 2017, arXiv:1603.07810). Raises ValueError for other shapes.
    """
    _check_triplets(z)
    if mask.shape != z[:, 0].shape:
        raise ValueError(f"mask must have shape {list(z[:, 0].shape)}, got {list(mask.shape)}")
    with full_precision(z.device):
        masked = _exact(z) * _exact(mask)[:, None]
        distances: Tensor = F.pairwise_distance(masked[:, :1], masked[:, 1:])
        return distances


def fused_distances(z: Tensor, masks: Tensor, weight: Tensor) -> Tensor:
    """Distances [B, 2] as `masked_distances`, of sums over concepts of weighted unit vectors.

    An embedding becomes sum over k of weight_k (z * mask_k) / ||z * mask_k|| (Tan 2019,
    arXiv:1908.08589). masks are [K, D]; weight is [B, 2, K], the first for anchor and far, the
    second for anchor and close. Raises ValueError for other shapes.
    """
    _check_triplets(z)
    B, D = len(z), z.shape[2]
    if masks.ndim != 2 or masks.shape[1] != D:
        raise ValueError(f"masks must have shape [K, {D}], got {list(masks.shape)}")
    if weight.shape != (B, 2, len(masks)):
        raise ValueError(f"weight must have shape {[B, 2, len(masks)]}, got {list(weight.shape)}")
    with full_precision(z.device):
        unit = unit_rows(_exact(z)[:, :, None] * _exact(masks))
        weight = _exact(weight)[..., None]
        anchor = (weight * unit[:, :1]).sum(dim=2)
        distances: Tensor = F.pairwise_distance(anchor, (weight * unit[:, 1:]).sum(dim=2))
        return distances


def unit_rows(z: Tensor) -> Tensor:
    """z / (||z|| + 1e-10) along the last axis: a zero row stays zero."""
    unit: Tensor = z / (torch.linalg.vector_norm(z, dim=-1, keepdim=True) + SHORTEST)
    return unit


def triplet_hinge(distances: Tensor, *, margin: float) -> Tensor:
    """Mean over triplets of max(0, margin + close - far), of `distances` [B, 2]: far, close.

    Raises ValueError for a margin that is not positive.
    """
    if not 0 < margin < float("inf"):
        raise ValueError(f"margin must be positive, got {margin}")
    far, close = _exact(distances).unbind(dim=1)
    return (margin + close - far).clamp(min=0).mean()


def embedding_size(z: Tensor) -> Tensor:
    """(||Z_anchor|| + ||Z_far|| + ||Z_close||) / (3 sqrt(B)), Frobenius norms of [B, D] each.

    About the root mean square length of an embedding; CSN adds 5e-3 of it to its loss.
    """
    _check_triplets(z)
    size: Tensor = torch.linalg.vector_norm(_exact(z), dim=(0, 2)).mean() / len(z) ** 0.5
    return size


def mask_size(mask: Tensor) -> Tensor:
    """Mean over masks [..., D] of the sum of their absolute values; CSN adds 5e-4 of it."""
    return _exact(mask).abs().sum(dim=-1).mean()


def _exact(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _check_triplets(z: Tensor) -> None:
    if z.ndim != 3 or z.shape[1] != 3 or 0 in z.shape:
        raise ValueError(f"z must have shape [B, 3, D], got {list(z.shape)}")
