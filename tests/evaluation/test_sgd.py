"""Tests of SGD probes of classes and label sets against probes trained with torch.optim.SGD."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.logistic import train_probes
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.spec.evaluate import SGDProbeSpec
from tests.evaluation.conftest import noisy_items

NUM_CLASSES = {"shape": 5, "colour": 3}
RECIPE = SGDProbeSpec(epochs=6, batch_size=16, lr=0.4, momentum=0.9, weight_decay=0.01)


def make_data(seed: int, dtype: torch.dtype = torch.float64) -> LabelledFeatures:
    found = noisy_items(70, seed, width=6)
    return LabelledFeatures(found.features.to(dtype), found.labels)


def trained(
    train: LabelledFeatures, recipe: SGDProbeSpec = RECIPE, *, seed: int = 3, val: LabelledFeatures
) -> dict[str, LinearProbe]:
    return train_probes([train] * recipe.epochs, NUM_CLASSES, recipe, seed=seed, val=val)


def loss_of(logits: Tensor, y: Tensor) -> Tensor:
    if y.ndim == 1:
        return F.cross_entropy(logits, y)
    each = F.binary_cross_entropy_with_logits(logits, (y == 1).to(logits), reduction="none")
    return (each * (y != 255)).sum(dim=1).mean()


def by_torch(epochs: list[Any], label: str, recipe: SGDProbeSpec, seed: int) -> list[Tensor]:
    """Returns weights [D + 1, C] after each epoch of nn.Linear and SGD on the known items."""
    y = epochs[0].labels[label]
    is_known = (y != 255).any(dim=1) if label == "looks" else y != -1
    x, y = epochs[0].features, y[is_known]
    layer = nn.Linear(x.shape[1], NUM_CLASSES.get(label, 4)).to(x.dtype)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    lr, momentum, decay = recipe.lr, recipe.momentum, recipe.weight_decay
    optimizer = torch.optim.SGD(layer.parameters(), lr, momentum, weight_decay=decay)
    generator = torch.Generator().manual_seed(seed)
    weights: list[Tensor] = []
    for epoch in epochs:
        x = epoch.features[is_known]
        for index in torch.randperm(len(x), generator=generator).split(recipe.batch_size):
            optimizer.zero_grad()
            loss_of(layer(x[index]), y[index]).backward()
            optimizer.step()
        weights.append(torch.cat([layer.weight.T, layer.bias[None]]).detach().clone())
    return weights


@pytest.mark.parametrize(
    ("momentum", "dtype", "shift"),
    [(0.0, torch.float64, 0.0), (0.9, torch.float32, 0.0), (0.9, torch.float64, 0.2)],
)
def test_a_probe_is_the_best_epoch_of_a_training(momentum: float, dtype: Any, shift: float) -> None:
    train, val = make_data(0, dtype=dtype), make_data(1, dtype=dtype)
    recipe = RECIPE.model_copy(update={"momentum": momentum})
    seen = [train._replace(features=train.features + i * shift) for i in range(recipe.epochs)]
    best = train_probes(iter(seen), NUM_CLASSES, recipe, seed=3, val=val)
    epochs = set()
    for label in (*NUM_CLASSES, "looks"):
        weights = by_torch(seen, label, recipe, seed=3)
        scores = [LinearProbe(best[label].kind, label, weight, "").score(val) for weight in weights]
        epoch = 1 + scores.index(max(scores))
        assert best[label].made == f"after {epoch} epochs"
        torch.testing.assert_close(best[label].weight, weights[epoch - 1], rtol=1e-6, atol=1e-6)
        epochs.add(epoch)
    assert len(epochs) > 1, "the labels must differ in their best epoch, or nothing is tested"
    assert epochs != {recipe.epochs}


def test_of_equally_good_epochs_the_first_is_taken() -> None:
    train = LabelledFeatures(torch.eye(2).double(), {"colour": torch.tensor([0, 1])})
    probe = trained(train, val=train)["colour"]
    assert probe.made == "after 1 epochs"
    assert probe.correct(train).tolist() == [True, True]
    one_epoch = RECIPE.model_copy(update={"epochs": 1})
    assert torch.equal(probe.weight, trained(train, one_epoch, val=train)["colour"].weight)


@pytest.mark.parametrize("where", ["lr", "train", "val"])
def test_numbers_that_are_not_finite_end_the_trial(where: str) -> None:
    train, val = make_data(0), make_data(1)
    recipe = SGDProbeSpec(epochs=2, lr=1e308 if where == "lr" else 0.1)
    if where != "lr":
        {"train": train, "val": val}[where].features[3, 2] = torch.inf
    message = r"outputs of the probe of 'shape' after \d epochs must be finite"
    with pytest.raises(DivergedError, match=message):
        trained(train, recipe, val=val)
