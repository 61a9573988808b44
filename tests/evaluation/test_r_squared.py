"""Tests of R^2 against scikit-learn, and of its deviation."""

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score

from mtcon_ray.evaluation.bootstrap import score_std
from mtcon_ray.evaluation.scores import r_squared


def test_r_squared_is_sklearn_s() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(50, generator=generator, dtype=torch.float64) + 7
    predicted = y + torch.randn(50, generator=generator, dtype=torch.float64)
    assert r_squared(predicted, y) == pytest.approx(r2_score(y.numpy(), predicted.numpy()))
    assert r_squared(predicted + 100, y) < -1000


def test_each_resample_has_its_own_mean() -> None:
    """The deviation equals that over all 27 equally likely resamples of three items."""
    y = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)
    predicted = torch.tensor([0.5, 0.5, 4.0], dtype=torch.float64)
    draws = torch.cartesian_prod(*[torch.arange(3)] * 3)
    values = [r_squared(predicted[rows], y[rows]) for rows in draws]
    found = score_std("number", predicted, y, 50_000, seed=0)
    assert found == pytest.approx(np.std(values), rel=0.02)


def test_a_constant_has_nothing_to_explain() -> None:
    y = torch.full((5,), 0.1, dtype=torch.float64)
    assert r_squared(y + 1, y) == 0
    assert score_std("number", y + 1, y, 20, seed=0) == 0
    assert r_squared(y[:1], y[:1]) == 0
