"""Tests of SGD probes of classes against probes trained with torch.optim.SGD."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.sgd import train_probes
from mtcon_ray.spec.evaluate import SGDProbeSpec

NUM_CLASSES = {"shape": 3, "colour": 5, "brand": 2, "origin": 4}
RECIPE = SGDProbeSpec(
    solver="sgd", epochs=6, batch_size=16, lr=0.4, momentum=0.9, weight_decay=0.01
)


def make_data(seed: int, n: int = 70, dtype: torch.dtype = torch.float64) -> LabelledFeatures:
    """Returns features with noisy labels; `brand` and `origin` are partly unknown."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(6, 5, generator=torch.Generator().manual_seed(99), dtype=dtype)
    features = torch.randn(n, 6, generator=generator, dtype=dtype).relu()
    noise = torch.randn(n, 5, generator=generator, dtype=dtype)
    scores = features @ truth + noise
    labels = {label: scores[:, :size].argmax(dim=1) for label, size in NUM_CLASSES.items()}
    for label, share in (("brand", 0.5), ("origin", 0.3)):
        labels[label][torch.rand(n, generator=generator) < share] = -1
    return LabelledFeatures(features, labels)


def trained(
    train: LabelledFeatures, recipe: SGDProbeSpec, *, seed: int, val: LabelledFeatures
) -> dict[str, LinearProbe]:
    return train_probes(train, NUM_CLASSES, recipe, seed=seed, val=val)


def alone_with_torch(
    train: LabelledFeatures, label: str, recipe: SGDProbeSpec, seed: int
) -> list[Tensor]:
    """Returns weights [D + 1, C] after each epoch of nn.Linear and SGD on the known items."""
    is_known = train.labels[label] != -1
    x, y = train.features[is_known], train.labels[label][is_known]
    layer = nn.Linear(x.shape[1], NUM_CLASSES[label]).to(x.dtype)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(
        layer.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
    )
    generator = torch.Generator().manual_seed(seed)
    weights: list[Tensor] = []
    for _ in range(recipe.epochs):
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), recipe.batch_size):
            index = order[start : start + recipe.batch_size]
            optimizer.zero_grad()
            loss = F.cross_entropy(layer(x[index]), y[index])
            loss.backward()
            optimizer.step()
        weights.append(torch.cat([layer.weight.T, layer.bias[None]]).detach().clone())
    return weights


def alone_choice(weights: list[Tensor], val: LabelledFeatures, label: str) -> int:
    """Returns the first epoch, counted from 1, with the highest accuracy on val's known items."""
    is_known = val.labels[label] != -1
    x, y = val.features[is_known], val.labels[label][is_known]
    right = [int(((x @ w[:-1] + w[-1]).argmax(dim=1) == y).sum()) for w in weights]
    return 1 + right.index(max(right))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_each_probe_is_what_training_it_alone_gives(dtype: torch.dtype, momentum: float) -> None:
    train, val = make_data(0, dtype=dtype), make_data(1, dtype=dtype)
    recipe = RECIPE.model_copy(update={"momentum": momentum})
    best = trained(train, recipe, seed=3, val=val)
    epochs = set()
    for label in NUM_CLASSES:
        weights = alone_with_torch(train, label, recipe, seed=3)
        epoch = alone_choice(weights, val, label)
        assert best[label].made == f"after {epoch} epochs"
        torch.testing.assert_close(best[label].weight, weights[epoch - 1], rtol=1e-6, atol=1e-6)
        epochs.add(epoch)
    assert len(epochs) > 1, "the labels must differ in their best epoch, or nothing is tested"
    assert epochs != {recipe.epochs}


def test_seed_decides_the_order_and_nothing_else_does() -> None:
    train, val = make_data(0), make_data(1)
    torch.manual_seed(1)
    first = trained(train, RECIPE, seed=3, val=val)
    torch.manual_seed(2)
    again = trained(train, RECIPE, seed=3, val=val)
    other = trained(train, RECIPE, seed=4, val=val)
    for label in NUM_CLASSES:
        assert torch.equal(first[label].weight, again[label].weight)
        assert not torch.equal(first[label].weight, other[label].weight)


def test_of_equally_good_epochs_the_first_is_taken() -> None:
    train = LabelledFeatures(torch.eye(2).double(), {"brand": torch.tensor([0, 1])})
    probe = trained(train, RECIPE, seed=0, val=train)["brand"]
    assert probe.made == "after 1 epochs"
    assert probe.correct(train).tolist() == [True, True]
    one_epoch = RECIPE.model_validate({**RECIPE.model_dump(), "epochs": 1})
    expected = trained(train, one_epoch, seed=0, val=train)["brand"]
    assert torch.equal(probe.weight, expected.weight)


@pytest.mark.parametrize("where", ["lr", "train", "val"])
def test_numbers_that_are_not_finite_end_the_trial(where: str) -> None:
    train, val = make_data(0), make_data(1)
    recipe = SGDProbeSpec(solver="sgd", epochs=2, lr=1e308 if where == "lr" else 0.1)
    if where != "lr":
        {"train": train, "val": val}[where].features[3, 2] = torch.inf
    with pytest.raises(
        DivergedError, match="outputs of the probe of 'shape' after 1 epochs must be finite"
    ):
        trained(train, recipe, seed=0, val=val)
