"""Cross-entropy: its equation, missing labels, views."""

import math

import pytest
import torch

from mtcon_ray.losses.numeric import cross_entropy


@pytest.mark.parametrize("seed", range(5))
def test_is_the_equation_written_as_loops(seed: int) -> None:
    """The mean is over the rows of all views, without those of unlabelled items."""
    draw = torch.Generator().manual_seed(seed)
    B, V, C = (int(torch.randint(1, 6, (), generator=draw)) for _ in range(3))
    logits = torch.randn(B, V, C, generator=draw, dtype=torch.float64)
    labels = torch.randint(-1, C, (B,), generator=draw)
    labels[0] = 0
    terms = [
        math.log(sum(math.exp(x) for x in row)) - row[label]
        for rows, label in zip(logits.tolist(), labels.tolist(), strict=True)
        for row in rows
        if label != -1
    ]
    expected = sum(terms) / len(terms)
    assert cross_entropy(logits, labels).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_without_any_label_it_is_a_differentiable_zero() -> None:
    logits = torch.randn(3, 2, 4, requires_grad=True)
    loss = cross_entropy(logits, torch.full((3,), -1))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == 0
    assert (gradient == 0).all()
