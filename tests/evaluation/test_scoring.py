"""Tests that classes, label sets and numbers are measured together as they are alone."""

import numpy as np
import pytest
import torch

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.evaluation import regression
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.evaluation.protocol import Measurement
from mtcon_ray.evaluation.regression import train_number_probe
from mtcon_ray.spec.evaluate import ConvergedProbeSpec, EvaluateSpec, ProbeSpec, SGDProbeSpec
from tests.evaluation.test_regression import data as numbers

NUM_CLASSES = {"colour": 3, "brand": 4}
SPLIT_OF = {"price": "heldout", "looks": "test", "brand": "test", "colour": "test"}
PENALTIES = (0.1, 0.01, 0.001)
LBFGS = ConvergedProbeSpec(solver="lbfgs", penalties=PENALTIES)
SGD = SGDProbeSpec(solver="sgd", epochs=3, batch_size=16)
TABLE = LabelTable(
    names=("a",),
    labels={"colour": np.array([0]), "brand": np.array([0])},
    classes={label: tuple("abcd"[:n]) for label, n in NUM_CLASSES.items()},
    split=np.array([0], dtype=np.int8),
    multi_hot={"looks": np.array([[0, 1, 0]], dtype=np.uint8)},
    multi_hot_names={"looks": ("x", "y", "z")},
    continuous={"price": np.array([1.0])},
)


def items(seed: int, n: int = 120) -> LabelledFeatures:
    """Returns items whose noisy labels depend on the features; all but `colour` partly unknown."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(6, 8, generator=torch.Generator().manual_seed(99))
    features = torch.randn(n, 6, generator=generator)
    shown = features @ truth + torch.randn(n, 8, generator=generator)
    unknown = torch.rand(n, 5, generator=generator) < 0.2
    looks = (shown[:, 4:7] > 0).to(torch.uint8)
    looks[unknown[:, :3]] = 255
    looks[:4] = 255
    return LabelledFeatures(
        features,
        {
            "colour": shown[:, :3].argmax(dim=1),
            "brand": shown[:, :4].argmax(dim=1).where(~unknown[:, 3], -1),
            "looks": looks,
            "price": shown[:, 7].double().where(~unknown[:, 4], torch.nan),
        },
    )


TRAIN, VAL, TEST = (items(seed) for seed in range(3))


def measurement(recipe: ProbeSpec, spec: EvaluateSpec) -> Measurement:
    return Measurement(TABLE, TRAIN, VAL, TEST, SPLIT_OF, recipe, spec, seed=5)


def test_the_penalty_of_a_number_is_not_chosen_on_the_test_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Val and test prefer different penalties here."""
    train, val, test = numbers(8, noise=5), numbers(200, seed=1, noise=5), numbers(8, noise=5)
    table = LabelTable((), {}, {}, np.zeros(0, np.int8), continuous={"price": np.zeros(0)})
    monkeypatch.setattr(regression, "PENALTIES", (1e-6, 1e-2, 1.0, 100.0))
    on_val, on_test = (train_number_probe("price", train, val=split).made for split in (val, test))
    assert on_val != on_test
    found = Measurement(table, train, val, test, {"price": "test"}, LBFGS, EvaluateSpec(), 0).fit()
    assert found.probes["price"].made == on_val


@pytest.mark.parametrize("recipe", [LBFGS, SGD])
def test_an_unknown_value_neither_teaches_nor_is_scored(recipe: ProbeSpec) -> None:
    """Scores are finite, and those of `brand` do not change if its unknown items are removed."""
    spec = EvaluateSpec(probe=recipe, bootstrap=50)
    found = measurement(recipe, spec).scores()
    assert {name.rsplit("/", 1)[1] for name in found} == set(SPLIT_OF)
    assert all(np.isfinite(value) for value in found.values())
    assert found["test/accuracy/colour"] > 1 / 3 + 0.1
    assert found["test/map/looks"] > 0.6
    assert found["heldout/r2/price"] > 0.3
    known = TEST.labels["brand"] != -1
    only = LabelledFeatures(TEST.features[known], {k: v[known] for k, v in TEST.labels.items()})
    again = Measurement(TABLE, TRAIN, VAL, only, SPLIT_OF, recipe, spec, seed=5).scores()
    assert again["test/accuracy/brand"] == found["test/accuracy/brand"]
    assert again["test/accuracy/colour"] != found["test/accuracy/colour"]


def test_numbers_alone_have_nothing_left_to_converge() -> None:
    alone = Measurement(TABLE, TRAIN, VAL, TEST, {"price": "test"}, LBFGS, EvaluateSpec(), seed=5)
    probes, gradient = alone.fit()
    assert list(probes) == ["price"]
    assert gradient == 0
    assert alone.neighbours() == {}
