"""Distances, hinge and regularisers of CSN and SCE-Net.

CSN: Veit et al. 2017, arXiv:1603.07810, code at
github.com/andreasveit/conditional-similarity-networks. SCE-Net: Tan et al. 2019, arXiv:1908.08589.

A triplet is three embeddings: the anchor, far (the negative) and close (the positive). z is
[B, 3, D], not normalised. Half precision is computed in float32, without autocast.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.float32 import full_precision

ANCHOR, FAR, CLOSE = range(3)
# Added to lengths, so that a vector of length 0 has a finite direction, as in SCE-Net's code.
SHORTEST = 1e-10


def masked_distances(z: Tensor, mask: Tensor) -> Tensor:
    """Returns distances [B, 2] of the anchor to far and to close, under each triplet's own mask.

    z is [B, 3, D] and mask [B, D]. The distance is ||(z_a - z_b) * mask + 1e-6||, with 1e-6 added
    to every component, so that its gradient is finite for equal embeddings. Raises ValueError for
    other shapes.
    """
    _check_triplets(z)
    if mask.shape != z[:, 0].shape:
        raise ValueError(f"mask must have shape {list(z[:, 0].shape)}, got {list(mask.shape)}")
    with full_precision(z.device):
        masked = _exact(z) * _exact(mask)[:, None]
        # pairwise_distance adds its default eps, 1e-6, to every component.
        distances: Tensor = F.pairwise_distance(masked[:, :1], masked[:, 1:])
        return distances


def fused_distances(z: Tensor, masks: Tensor, weight: Tensor) -> Tensor:
    """Returns distances [B, 2] like `masked_distances`, between embeddings fused over K concepts.

    The fused embedding is the sum over k of weight_k (z * mask_k) / ||z * mask_k||. z is
    [B, 3, D] and masks [K, D]. weight is [B, 2, K]: weight[:, 0] for the pair (anchor, far),
    weight[:, 1] for (anchor, close). Raises ValueError for other shapes.
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
    """Returns z / (||z|| + 1e-10) along the last axis; zero rows stay zero."""
    unit: Tensor = z / (torch.linalg.vector_norm(z, dim=-1, keepdim=True) + SHORTEST)
    return unit


def triplet_hinge(distances: Tensor, *, margin: float) -> Tensor:
    """Returns the mean over triplets of max(0, margin + d_close - d_far).

    distances is [B, 2]: (d_far, d_close). Raises ValueError for a margin that is not positive.
    """
    if not 0 < margin < float("inf"):
        raise ValueError(f"margin must be positive, got {margin}")
    far, close = _exact(distances).unbind(dim=1)
    return (margin + close - far).clamp(min=0).mean()


def embedding_size(z: Tensor) -> Tensor:
    """Returns (||Z_anchor|| + ||Z_far|| + ||Z_close||) / (3 sqrt(B)), of Frobenius norms of [B, D].

    This is about the root mean square length of an embedding. CSN adds 5e-3 times this to its
    loss. Raises ValueError unless z is [B, 3, D].
    """
    _check_triplets(z)
    size: Tensor = torch.linalg.vector_norm(_exact(z), dim=(0, 2)).mean() / len(z) ** 0.5
    return size


def mask_size(mask: Tensor) -> Tensor:
    """Returns the mean over masks [..., D] of their L1 norm; CSN adds 5e-4 times this."""
    return _exact(mask).abs().sum(dim=-1).mean()


def _exact(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _check_triplets(z: Tensor) -> None:
    if z.ndim != 3 or z.shape[1] != 3 or 0 in z.shape:
        raise ValueError(f"z must have shape [B, 3, D], got {list(z.shape)}")
