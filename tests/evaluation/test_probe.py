"""Tests of the probe of a number against scikit-learn's ridge."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation import probe as module
from mtcon_ray.evaluation.probe import LabelledFeatures, train_number_probe
from mtcon_ray.evaluation.protocol import Measurement
from mtcon_ray.spec.evaluate import EvaluateSpec


def data(n: int = 80, seed: int = 0, noise: float = 0.5) -> LabelledFeatures:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator) * torch.arange(1, 7) + 3
    y = x[:, 0] - 0.2 * x[:, 5] + noise * torch.randn(n, generator=generator)
    return LabelledFeatures(x, {"price": y.double()})


def test_is_sklearn_s_ridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PENALTIES", (0.03,))
    train = data()
    probe = train_number_probe("price", train)
    x = train.features.double().numpy()
    penalty = 0.03 * x.var(axis=0).mean() * len(x)
    exact = Ridge(alpha=penalty).fit(x, train.labels["price"].numpy())
    weight = [*exact.coef_.tolist(), exact.intercept_]
    assert probe.weight[:, 0].tolist() == pytest.approx(weight, rel=1e-6)
    test = data(seed=1)
    expected = exact.predict(test.features.double().numpy())
    assert probe.predicted(test).tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_the_penalty_is_chosen_on_val_and_else_the_middle_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Test items, here those of train, prefer another one. Numbers have nothing to converge."""
    train, val = data(8, noise=5), data(200, seed=1, noise=5)
    each = []
    for penalty in (penalties := (1e-6, 1e-2, 1.0, 100.0)):
        monkeypatch.setattr(module, "PENALTIES", (penalty,))
        each.append(train_number_probe("price", train))
    monkeypatch.setattr(module, "PENALTIES", penalties)
    best, best_on_test = (max(each, key=lambda p: p.score(split)) for split in (val, train))
    table = LabelTable((), {}, {}, np.zeros(0, np.int8), continuous={"price": np.zeros(0)})
    places = {"price": ("test", "price")}
    measurement = Measurement(table, train, val, train, places, EvaluateSpec(), seed=0)
    probes, gradient = measurement.fit()
    assert torch.equal(probes["price"].weight, best.weight)
    assert torch.equal(train_number_probe("price", train).weight, each[2].weight)
    assert best is not each[2]
    assert best is not best_on_test
    assert gradient == 0
    assert measurement.neighbours() == {}


def test_constant_features_predict_the_mean() -> None:
    flat = LabelledFeatures(torch.full((9, 4), 0.1), {"price": torch.arange(9).double()})
    probe = train_number_probe("price", flat)
    assert probe.predicted(flat).tolist() == pytest.approx([4.0] * 9, abs=1e-6)


def test_features_that_are_not_finite_are_named() -> None:
    train = data()
    broken = LabelledFeatures(train.features * math.nan, train.labels)
    with pytest.raises(DivergedError, match="features must be finite"):
        train_number_probe("price", broken)
