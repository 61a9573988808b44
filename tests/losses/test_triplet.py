"""Masked distances, hinge, regularisers: their equations as loops, gradients."""

import math

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import triplet


def drawn(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Returns z [B, 3, D], masks [K, D] and weights [B, 2, K] of random sizes, in float64."""
    draw = torch.Generator().manual_seed(seed)
    B, D, K = (int(torch.randint(1, 6, (), generator=draw)) for _ in range(3))
    z = torch.randn(B, 3, D, generator=draw, dtype=torch.float64)
    masks = torch.randn(K, D, generator=draw, dtype=torch.float64).relu()
    return z, masks, torch.rand(B, 2, K, generator=draw, dtype=torch.float64)


def fused(row_D: Tensor, masks_KD: Tensor, weight_K: Tensor) -> Tensor:
    """Returns the sum over concepts of weight times the unit vector of the masked row."""
    total_D = torch.zeros_like(row_D)
    for mask_D, weight in zip(masks_KD, weight_K, strict=True):
        x_D = row_D * mask_D
        total_D += weight * x_D / (x_D.norm() + 1e-10)
    return total_D


def distance(one_D: Tensor, other_D: Tensor) -> float:
    return float((one_D - other_D + 1e-6).norm())


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_the_equations_written_as_loops(seed: int) -> None:
    z, masks, weight = drawn(seed)
    mask = masks[torch.arange(len(z)) % len(masks)]
    plain = triplet.masked_distances(z, mask).tolist()
    together = triplet.fused_distances(z, masks, weight).tolist()
    for b, rows in enumerate(z):
        for pair in (0, 1):
            one, other = (rows[p] * mask[b] for p in (0, 1 + pair))
            assert plain[b][pair] == pytest.approx(distance(one, other), rel=1e-9)
            one, other = (fused(rows[p], masks, weight[b, pair]) for p in (0, 1 + pair))
            assert together[b][pair] == pytest.approx(distance(one, other), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_hinge_and_regularisers_are_the_equations_written_as_loops(seed: int) -> None:
    z, masks, _ = drawn(seed)
    B = len(z)
    distances = torch.rand(B, 2, generator=torch.Generator().manual_seed(seed)).double()
    hinge = sum(max(0.0, 0.2 + close - far) for far, close in distances.tolist()) / B
    assert triplet.triplet_hinge(distances, margin=0.2).item() == pytest.approx(hinge, rel=1e-12)
    size = sum([math.hypot(*z[:, p].flatten().tolist()) for p in range(3)]) / (3 * math.sqrt(B))
    assert triplet.embedding_size(z).item() == pytest.approx(size, rel=1e-12)
    mean = sum(map(sum, masks.tolist())) / len(masks)
    assert triplet.mask_size(masks).item() == pytest.approx(mean, rel=1e-12)


def test_equal_and_zero_embeddings_have_finite_gradients() -> None:
    """Equal embeddings (duplicate images), zero embeddings, and masks of zeros."""
    for scale, mask in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        z = torch.full((2, 3, 4), scale, requires_grad=True)
        beta = torch.full((2, 4), mask, requires_grad=True)
        weight = torch.full((2, 2, 2), 0.5)
        both = triplet.masked_distances(z, beta), triplet.fused_distances(z, beta, weight)
        hinges = [triplet.triplet_hinge(each, margin=0.2) for each in both]
        loss = torch.stack(hinges).sum() + triplet.embedding_size(z)
        assert loss.isfinite()
        assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (z, beta)))
