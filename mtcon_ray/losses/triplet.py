"""Distances, hinge and regularisers of CSN and SCE-Net.

CSN: Veit et al. 2017, arXiv:1603.07810, code at
github.com/andreasveit/conditional-similarity-networks. SCE-Net: Tan et al. 2019, arXiv:1908.08589.

A triplet is three embeddings: the anchor, far (the negative) and close (the positive). z is
[B, 3, D], not normalised. Distances and lengths in half precision are computed in float32, without
autocast.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.numeric import in_full_precision

# Added to lengths: a vector of length 0 then has a finite direction, as in SCE-Net's code.
SHORTEST = 1e-10


@in_full_precision
def masked_distances(z: Tensor, mask: Tensor) -> Tensor:
    """Returns distances [B, 2] of the anchor to far and to close, under each triplet's own mask.

    z is [B, 3, D] and mask [B, D]. The distance is ||(z_a - z_b) * mask + 1e-6||. Adding 1e-6 to
    every component makes its gradient finite for equal embeddings.
    """
    masked = z * mask[:, None]
    # pairwise_distance adds its default eps, 1e-6, to every component.
    return F.pairwise_distance(masked[:, :1], masked[:, 1:])


@in_full_precision
def fused_distances(z: Tensor, masks: Tensor, weight: Tensor) -> Tensor:
    """Returns distances [B, 2] like `masked_distances`, between embeddings fused over K concepts.

    The fused embedding is the sum over k of weight_k (z * mask_k) / ||z * mask_k||. z is
    [B, 3, D] and masks [K, D]. weight is [B, 2, K]: weight[:, 0] for the pair (anchor, far),
    weight[:, 1] for (anchor, close).
    """
    unit = unit_rows(z[:, :, None] * masks)
    weight = weight[..., None]
    return F.pairwise_distance((weight * unit[:, :1]).sum(dim=2), (weight * unit[:, 1:]).sum(dim=2))


def unit_rows(z: Tensor) -> Tensor:
    """Returns z / (||z|| + 1e-10) along the last axis. Zero rows stay zero."""
    unit: Tensor = z / (torch.linalg.vector_norm(z, dim=-1, keepdim=True) + SHORTEST)
    return unit


def triplet_hinge(distances: Tensor, *, margin: float) -> Tensor:
    """Returns the mean over triplets of max(0, margin + d_close - d_far).

    distances is [B, 2]: (d_far, d_close).
    """
    far, close = distances.unbind(dim=1)
    return (margin + close - far).clamp(min=0).mean()


@in_full_precision
def embedding_size(z: Tensor) -> Tensor:
    """Returns (||Z_anchor|| + ||Z_far|| + ||Z_close||) / (3 sqrt(B)), of Frobenius norms of [B, D].

    This is about the root mean square length of an embedding. CSN adds 5e-3 times this to its
    loss.
    """
    size: Tensor = torch.linalg.vector_norm(z, dim=(0, 2)).mean() / len(z) ** 0.5
    return size


def mask_size(mask: Tensor) -> Tensor:
    """Returns the mean over masks [..., D] of their L1 norm. CSN adds 5e-4 times this."""
    return mask.abs().sum(dim=-1).mean()
