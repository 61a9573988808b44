"""Tests of the bootstrap deviation against its formula and against resampling of items."""

import math

import pytest
import torch

from mtcon_ray.evaluation.bootstrap import accuracy_std


@pytest.mark.parametrize(("n", "right"), [(5000, 4000), (100, 30), (7, 1)])
def test_tends_to_the_binomial_deviation(n: int, right: int) -> None:
    correct = torch.arange(n) < right
    p = right / n
    expected = math.sqrt(p * (1 - p) / n)
    assert accuracy_std(correct, 50_000, seed=0) == pytest.approx(expected, rel=0.015)


def test_follows_from_its_seed() -> None:
    correct = torch.arange(100) < 70
    assert accuracy_std(correct, 1000, seed=1) == accuracy_std(correct, 1000, seed=1)
    assert accuracy_std(correct, 1000, seed=1) != accuracy_std(correct, 1000, seed=2)
