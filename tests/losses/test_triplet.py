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


def masked(row: list[float], mask: list[float]) -> list[float]:
    return [x * m for x, m in zip(row, mask, strict=True)]


def fused(row: list[float], masks: list[list[float]], weights: list[float]) -> list[float]:
    """Returns the sum over concepts of weight times the unit vector of the masked row."""
    total = [0.0] * len(row)
    for mask, weight in zip(masks, weights, strict=True):
        x = masked(row, mask)
        total = [
            t + weight * value / (math.hypot(*x) + 1e-10) for t, value in zip(total, x, strict=True)
        ]
    return total


def distance(one: list[float], other: list[float]) -> float:
    return math.hypot(*(x - y + 1e-6 for x, y in zip(one, other, strict=True)))


@pytest.mark.parametrize("seed", range(5))
def test_distances_are_the_equations_written_as_loops(seed: int) -> None:
    z, masks, weight = drawn(seed)
    mask = masks[torch.arange(len(z)) % len(masks)]
    plain = triplet.masked_distances(z, mask).tolist()
    together = triplet.fused_distances(z, masks, weight).tolist()
    for b, rows in enumerate(z.tolist()):
        for pair in (0, 1):
            one, other = (masked(rows[p], mask[b].tolist()) for p in (0, 1 + pair))
            assert plain[b][pair] == pytest.approx(distance(one, other), rel=1e-9)
            weights = weight[b, pair].tolist()
            one, other = (fused(rows[p], masks.tolist(), weights) for p in (0, 1 + pair))
            assert together[b][pair] == pytest.approx(distance(one, other), rel=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_hinge_and_regularisers_are_the_equations_written_as_loops(seed: int) -> None:
    z, masks, _ = drawn(seed)
    B = len(z)
    distances = torch.rand(B, 2, generator=torch.Generator().manual_seed(seed)).double()
    hinge = sum(max(0.0, 0.2 + close - far) for far, close in distances.tolist()) / B
    assert triplet.triplet_hinge(distances, margin=0.2).item() == pytest.approx(hinge, rel=1e-12)
    norms = [math.hypot(*z[:, p].flatten().tolist()) for p in range(3)]
    size = sum(norms) / (3 * math.sqrt(B))
    assert triplet.embedding_size(z).item() == pytest.approx(size, rel=1e-12)
    mean = sum(map(sum, masks.tolist())) / len(masks)
    assert triplet.mask_size(masks).item() == pytest.approx(mean, rel=1e-12)


def test_equal_and_zero_embeddings_have_finite_gradients() -> None:
    """Equal embeddings (duplicate images), zero embeddings, and masks of zeros."""
    for scale, mask in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        z = torch.full((2, 3, 4), scale, requires_grad=True)
        beta = torch.full((2, 4), mask, requires_grad=True)
        weight = torch.full((2, 2, 2), 0.5)
        loss = triplet.triplet_hinge(
            triplet.masked_distances(z, beta), margin=0.2
        ) + triplet.embedding_size(z)
        loss = loss + triplet.triplet_hinge(triplet.fused_distances(z, beta, weight), margin=0.2)
        assert loss.isfinite()
        assert all(g.isfinite().all() for g in torch.autograd.grad(loss, (z, beta)))
