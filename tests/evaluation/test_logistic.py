"""Tests of converged probes: their minimum, its invariances, and the choice of the penalty."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation import logistic
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.probe import Fit, LabelledFeatures, LinearProbe
from mtcon_ray.spec.evaluate import CONVERGED
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT
from tests.evaluation.conftest import noisy_items
from tests.some import some

NUM_CLASSES = {"shape": 5, "colour": 3}
PENALTIES = (1e-1, 1e-2, 1e-3)


def items(num: int, seed: int = 0) -> LabelledFeatures:
    """Returns items whose features have very different scales."""
    found = noisy_items(num, seed, width=12)
    return LabelledFeatures(found.features * torch.logspace(-2, 2, 12) + 3, found.labels)


def logits_of(probe: LinearProbe, train: LabelledFeatures) -> Tensor:
    return train.features.double() @ probe.weight[:-1] + probe.weight[-1]


@pytest.fixture(scope="module")
def train() -> LabelledFeatures:
    return items(300)


@pytest.fixture(scope="module")
def val() -> LabelledFeatures:
    return items(200, seed=1)


@pytest.fixture(scope="module")
def fitted(train: LabelledFeatures, val: LabelledFeatures) -> Fit:
    return fit(train, NUM_CLASSES, PENALTIES, val=val)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["colour", "looks"])
def test_a_probe_reaches_scikit_learn_s_minimum_of_the_penalised_cross_entropy(
    label: str, train: LabelledFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes of classes are compared by log-probabilities: logits are free by a constant."""
    monkeypatch.setattr(logistic, "ROUGH", 1e-7)
    monkeypatch.setattr(logistic, "MOST_LOGITS", 100)  # in parts
    x_ND, y = train.features.double().numpy(), train.labels[label].numpy()
    x_ND = (x_ND - x_ND.mean(axis=0)) / x_ND.std(axis=0)

    def minimum(y_N: np.ndarray, unknown: int) -> LogisticRegression:
        known_N = y_N != unknown
        solver = LogisticRegression(C=1 / (0.01 * known_N.sum()), tol=1e-8, max_iter=1000)
        return solver.fit(x_ND[known_N], y_N[known_N])

    found = logits_of(fit(train, NUM_CLASSES, [0.01]).probes[label], train)
    if label == "colour":
        found, expected = found.log_softmax(dim=1), minimum(y, MISSING).predict_log_proba(x_ND)
    else:
        each = [minimum(bits, UNKNOWN_BIT).decision_function(x_ND) for bits in y.T]
        expected = np.stack(each, axis=1)
    assert found.numpy() == pytest.approx(expected, rel=0, abs=1e-4)


def test_best_penalty_by_label(train: LabelledFeatures, val: LabelledFeatures, fitted: Fit) -> None:
    """The choice agrees with probes fitted at each penalty alone."""
    alone = [fit(train, NUM_CLASSES, [penalty]).probes for penalty in PENALTIES]
    for label, found in fitted.probes.items():
        best = max((probes[label] for probes in alone), key=lambda probe: probe.score(val))
        assert found.made == best.made, label


def test_of_equal_scores_the_largest_penalty_is_chosen() -> None:
    x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    all_right = LabelledFeatures(x, {"a": torch.tensor([0, 0, 1, 1])})
    for penalties in ([1e-3, 1e-1, 1e-2], [1e-1, 1e-3]):
        found = fit(all_right, {"a": 2}, penalties, val=all_right)
        assert found.probes["a"].made == "with penalty 0.1"


def test_a_probe_that_has_not_converged_says_so(
    train: LabelledFeatures, val: LabelledFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logistic, "MOST_STEPS", 1)
    assert some(fit(train, NUM_CLASSES, [1e-4], val=val).gradient) > CONVERGED


def predictions(found: Fit, data: LabelledFeatures) -> Tensor:
    shape, colour, looks = (found.probes[t].predicted(data) for t in ("shape", "colour", "looks"))
    return torch.stack([shape, colour, *(looks > 0).long().unbind(1)])


def test_neither_order_nor_scale_nor_threads_move_a_prediction(
    train: LabelledFeatures, val: LabelledFeatures, fitted: Fit
) -> None:
    asked, scale = items(1000, seed=2), torch.logspace(3, -3, train.features.shape[1])
    order = torch.randperm(len(train.features), generator=torch.Generator().manual_seed(3))
    labels = {label: y[order] for label, y in train.labels.items()}
    shuffled = LabelledFeatures(train.features[order], labels)
    scaled = [LabelledFeatures(x.features * scale - 1, x.labels) for x in (train, val, asked)]
    threads = torch.get_num_threads()
    for (given, chosen_on, tested), num_threads in (
        ((shuffled, val, asked), threads),
        (scaled, threads),
        ((train, val, asked), 2 if threads == 1 else 1),
    ):
        torch.set_num_threads(num_threads)
        try:
            found = fit(given, NUM_CLASSES, PENALTIES, val=chosen_on)
        finally:
            torch.set_num_threads(threads)
        assert (predictions(found, tested) != predictions(fitted, asked)).double().mean() <= 1e-3


def test_constant_and_repeated_features_add_nothing(train: LabelledFeatures) -> None:
    """Features that vary by rounding only, as after a collapse, are not scaled up."""
    constant = torch.full_like(train.features[:, :3], 1e4)
    constant[0] += 1e-3
    wide = LabelledFeatures(torch.cat([train.features, constant], dim=1), train.labels)
    found, expected = (fit(data, NUM_CLASSES, [0.01]) for data in (wide, train))
    for label in train.labels:
        both = (found.probes[label], wide), (expected.probes[label], train)
        torch.testing.assert_close(*(logits_of(probe, data) for probe, data in both))
    collapsed = LabelledFeatures(torch.ones(300, 4), train.labels)
    probe = fit(collapsed, NUM_CLASSES, [0.01]).probes["shape"]
    assert (probe.predicted(collapsed) == train.labels["shape"].mode().values).all()


def test_a_class_without_items_is_never_predicted(train: LabelledFeatures) -> None:
    few = fit(train, {**NUM_CLASSES, "shape": 9}, [1e-3])
    assert few.probes["shape"].predicted(train).max() <= 4
    one = LabelledFeatures(train.features, {"shape": torch.zeros(300, dtype=torch.int64)})
    alone = fit(one, {"shape": 1}, [1e-3], val=one)
    assert math.isfinite(some(alone.gradient))
    assert alone.probes["shape"].weight.abs().max() == 0


@pytest.mark.parametrize("where", ["train", "val"])
def test_infinite_features_fail(where: str, train: LabelledFeatures, val: LabelledFeatures) -> None:
    parts = {"train": train, "val": val}
    parts[where] = LabelledFeatures(parts[where].features.clone(), parts[where].labels)
    parts[where].features[1, 2] = math.inf
    with pytest.raises(DivergedError, match="must be finite, got inf or nan"):
        fit(parts["train"], NUM_CLASSES, PENALTIES, val=parts["val"])
