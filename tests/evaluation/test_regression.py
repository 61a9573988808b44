"""Tests of the probe of a number against scikit-learn's ridge, and of R^2."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.evaluation.regression import (
    NumberProbe,
    r_squared,
    r_squared_std,
    train_number_probe,
)


def data(n: int = 80, seed: int = 0, noise: float = 0.5) -> LabelledFeatures:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator) * torch.arange(1, 7) + 3
    y = x[:, 0] - 0.2 * x[:, 5] + noise * torch.randn(n, generator=generator)
    return LabelledFeatures(x, {"price": y.double()})


def test_is_sklearn_s_ridge() -> None:
    train = data()
    probe = train_number_probe("price", train, (0.03,))
    x = train.features.double().numpy()
    penalty = 0.03 * x.var(axis=0).mean() * len(x)
    exact = Ridge(alpha=penalty).fit(x, train.labels["price"].numpy())
    assert probe.weight.tolist() == pytest.approx(exact.coef_.tolist(), rel=1e-6)
    assert probe.offset.item() == pytest.approx(exact.intercept_, rel=1e-6)
    test = data(seed=1).features
    expected = exact.predict(test.double().numpy())
    assert probe.predictions(test).tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_the_scale_of_features_does_not_matter() -> None:
    train = data()
    larger = LabelledFeatures(train.features * 1024, train.labels)
    one = train_number_probe("price", train, (0.03,)).predictions(train.features)
    other = train_number_probe("price", larger, (0.03,)).predictions(larger.features)
    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)


def test_the_penalty_is_chosen_on_val_and_else_the_middle_one() -> None:
    train, val = data(8, noise=5), data(200, seed=1, noise=5)
    penalties = (1e-6, 1e-2, 1.0, 100.0)
    each = [train_number_probe("price", train, (p,)) for p in penalties]
    values = [r_squared(p.predictions(val.features), val.labels["price"]) for p in each]
    chosen = train_number_probe("price", train, penalties, val=val)
    assert torch.equal(chosen.weight, each[values.index(max(values))].weight)
    assert torch.equal(train_number_probe("price", train, penalties).weight, each[2].weight)
    assert values.index(max(values)) != 2


def test_unknown_numbers_are_left_out() -> None:
    train = data()
    some = train.labels["price"].clone()
    some[40:] = math.nan
    half = LabelledFeatures(train.features[:40], {"price": some[:40]})
    partly = LabelledFeatures(train.features, {"price": some})
    found = train_number_probe("price", partly, (0.1,), val=partly)
    assert torch.equal(found.weight, train_number_probe("price", half, (0.1,), val=half).weight)
    predicted = found.predictions(train.features)
    assert r_squared(predicted, some) == r_squared(predicted[:40], some[:40])


def test_r_squared_is_sklearn_s() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(50, generator=generator, dtype=torch.float64) + 7
    predicted = y + torch.randn(50, generator=generator, dtype=torch.float64)
    assert r_squared(predicted, y) == pytest.approx(r2_score(y.numpy(), predicted.numpy()))
    assert r_squared(predicted + 100, y) < -1000


def test_a_constant_has_nothing_to_explain() -> None:
    y = torch.full((5,), 0.1, dtype=torch.float64)
    assert r_squared(y + 1, y) == 0
    assert r_squared_std(y + 1, y, 20, seed=0) == 0
    assert r_squared(y[:1], y[:1]) == 0


def test_constant_features_predict_the_mean() -> None:
    flat = LabelledFeatures(torch.full((9, 4), 0.1), {"price": torch.arange(9).double()})
    probe = train_number_probe("price", flat, (1e-5,))
    assert probe.predictions(flat.features).tolist() == pytest.approx([4.0] * 9, abs=1e-6)


def test_the_deviation_is_that_of_resampled_items() -> None:
    train = data(60)
    y, predicted = train.labels["price"], train.features[:, 0].double()
    index = torch.randint(0, 60, (4000, 60), generator=torch.Generator().manual_seed(0))
    values = [r_squared(predicted[rows], y[rows]) for rows in index]
    assert r_squared_std(predicted, y, 20_000, seed=0) == pytest.approx(np.std(values), rel=0.05)


def test_features_that_are_not_finite_are_named() -> None:
    train = data()
    broken = LabelledFeatures(train.features * math.nan, train.labels)
    with pytest.raises(DivergedError, match="features must be finite"):
        train_number_probe("price", broken, (0.1,))
    probe = NumberProbe("price", torch.ones(6, dtype=torch.float64), torch.zeros(1))
    with pytest.raises(DivergedError, match="predictions of the probe of 'price' must be finite"):
        probe.predictions(broken.features)


def test_each_resample_has_its_own_mean() -> None:
    """The deviation equals that over all 27 equally likely resamples of three items."""
    y = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)
    predicted = torch.tensor([0.5, 0.5, 4.0], dtype=torch.float64)
    draws = torch.cartesian_prod(*[torch.arange(3)] * 3)
    values = [r_squared(predicted[rows], y[rows]) for rows in draws]
    assert r_squared_std(predicted, y, 50_000, seed=0) == pytest.approx(np.std(values), rel=0.02)
