"""Tests of converged probes: their minimum, its invariances, and the choice of the penalty."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation import logistic
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.probe import Fit, LabelledFeatures, LinearProbe
from mtcon_ray.spec.evaluate import CONVERGED
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT
from tests.some import some

NUM_CLASSES = {"shape": 5, "colour": 3}
PENALTIES = (1e-1, 1e-2, 1e-3)


def items(num: int, seed: int = 0, width: int = 12) -> LabelledFeatures:
    """Returns features of very different scales, with noisy labels of which some are unknown."""
    generator = torch.Generator().manual_seed(seed)
    x_ND = torch.randn(num, width, generator=generator)
    true = torch.Generator().manual_seed(99)
    logits = x_ND @ torch.randn(width, 16, generator=true) + torch.randn(
        num, 16, generator=generator
    )
    shape, colour = logits[:, :5].argmax(dim=1), logits[:, 5:8].argmax(dim=1)
    colour[::7] = MISSING
    looks = (logits[:, 8:12] > 0).to(torch.uint8)
    looks[::5, 1] = UNKNOWN_BIT
    looks[3] = UNKNOWN_BIT
    scales = torch.logspace(-2, 2, width)
    return LabelledFeatures(x_ND * scales + 3, {"shape": shape, "colour": colour, "looks": looks})


def standardised(train: LabelledFeatures) -> Tensor:
    x_ND = train.features.double()
    return (x_ND - x_ND.mean(dim=0)) / x_ND.std(dim=0, correction=0)


def slowly(
    x_ND: Tensor, loss_of: Callable[[Tensor], Tensor], num_columns: int, penalty: float
) -> Tensor:
    """Returns the logits at the minimum for one label, by autograd and 3,000 steps of SGD."""
    weight = torch.zeros(x_ND.shape[1], num_columns, dtype=torch.float64, requires_grad=True)
    offset = torch.zeros(num_columns, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight, offset], lr=0.5, momentum=0.9)
    for _ in range(3000):
        optimizer.zero_grad()
        (loss_of(x_ND @ weight + offset) + penalty / 2 * weight.square().sum()).backward()
        optimizer.step()
    return (x_ND @ weight + offset).detach()


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
def test_a_probe_reaches_the_minimum_of_the_penalised_cross_entropy(
    label: str, train: LabelledFeatures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes of classes are compared by log-probabilities: logits are free by a constant."""
    monkeypatch.setattr(logistic, "ROUGH", 1e-7)
    y = train.labels[label]

    def of_classes(logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, y, ignore_index=MISSING)

    def of_sets(logits: Tensor) -> Tensor:
        known, has = y != UNKNOWN_BIT, (y == 1).double()
        each = F.binary_cross_entropy_with_logits(logits, has, reduction="none")
        return ((each * known).sum(dim=0) / known.sum(dim=0)).sum()

    x_ND, is_classes = standardised(train), label == "colour"
    expected = slowly(x_ND, of_classes if is_classes else of_sets, 3 if is_classes else 4, 0.01)
    found = logits_of(fit(train, NUM_CLASSES, [0.01]).probes[label], train)
    if is_classes:
        found, expected = found.log_softmax(dim=1), expected.log_softmax(dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_each_label_has_the_penalty_that_is_best_on_val(
    train: LabelledFeatures, val: LabelledFeatures, fitted: Fit
) -> None:
    """The choice agrees with probes fitted at each penalty alone."""
    alone = [fit(train, NUM_CLASSES, [penalty]).probes for penalty in PENALTIES]
    for label, found in fitted.probes.items():
        best = max((probes[label] for probes in alone), key=lambda probe: probe.score(val))
        assert found.made == best.made, label


def test_of_equal_scores_the_largest_penalty_is_chosen() -> None:
    x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    all_right = LabelledFeatures(x, {"a": torch.tensor([0, 0, 1, 1])})
    for penalties in ([1e-3, 1e-1, 1e-2], [1e-1, 1e-3]):
        assert fit(all_right, {"a": 2}, penalties, val=all_right).probes["a"].made == (
            "with penalty 0.1"
        )


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
    expected = predictions(fitted, items(1000, seed=2))
    order = torch.randperm(len(train.features), generator=torch.Generator().manual_seed(3))
    shuffled = LabelledFeatures(
        train.features[order], {label: y[order] for label, y in train.labels.items()}
    )
    found = fit(shuffled, NUM_CLASSES, PENALTIES, val=val)
    assert (predictions(found, items(1000, seed=2)) != expected).double().mean() <= 1e-3

    scale = torch.logspace(3, -3, train.features.shape[1])
    scaled, scaled_val, scaled_asked = (
        LabelledFeatures(part.features * scale - 1, part.labels)
        for part in (train, val, items(1000, seed=2))
    )
    found = fit(scaled, NUM_CLASSES, PENALTIES, val=scaled_val)
    assert (predictions(found, scaled_asked) != expected).double().mean() <= 1e-3

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if threads == 1 else 1)
        found = fit(train, NUM_CLASSES, PENALTIES, val=val)
    finally:
        torch.set_num_threads(threads)
    assert (predictions(found, items(1000, seed=2)) != expected).double().mean() <= 1e-3


def test_constant_and_repeated_features_add_nothing(train: LabelledFeatures) -> None:
    """Features that vary by rounding only, as after a collapse, are not scaled up."""
    constant = torch.full_like(train.features[:, :3], 1e4)
    constant[0] += 1e-3
    wide = LabelledFeatures(torch.cat([train.features, constant], dim=1), train.labels)
    found, expected = (fit(data, NUM_CLASSES, [0.01]) for data in (wide, train))
    for label in train.labels:
        torch.testing.assert_close(
            logits_of(found.probes[label], wide), logits_of(expected.probes[label], train)
        )
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
def test_features_that_are_not_finite_are_an_error(
    where: str, train: LabelledFeatures, val: LabelledFeatures
) -> None:
    parts = {"train": train, "val": val}
    parts[where] = LabelledFeatures(parts[where].features.clone(), parts[where].labels)
    parts[where].features[1, 2] = math.inf
    with pytest.raises(DivergedError, match="must be finite, got inf or nan"):
        fit(parts["train"], NUM_CLASSES, PENALTIES, val=parts["val"])
