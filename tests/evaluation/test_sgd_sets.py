"""Tests of the SGD probe of a label set: steps, masking, and selection on validation."""

from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe
from mtcon_ray.evaluation.sgd import train_probes
from mtcon_ray.spec.evaluate import SGDProbeSpec

RECIPE = SGDProbeSpec(solver="sgd", epochs=4, batch_size=16, lr=0.1, momentum=0.9)


def data(n: int = 200, seed: int = 0, L: int = 3) -> LabelledFeatures:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    directions = torch.randn(4, L, generator=torch.Generator().manual_seed(9))
    noisy = x @ directions + torch.randn(n, L, generator=generator)
    return LabelledFeatures(x, {"looks": (noisy > 0.5).to(torch.uint8)})


def trained(
    train: LabelledFeatures, recipe: SGDProbeSpec = RECIPE, *, val: LabelledFeatures, seed: int = 0
) -> LinearProbe:
    return train_probes(train, {}, recipe, seed=seed, val=val)["looks"]


def with_bits(features: LabelledFeatures, bits: Tensor) -> LabelledFeatures:
    return LabelledFeatures(features.features, {"looks": bits})


@pytest.fixture
def last_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each epoch score higher on val than the one before, so that the last is chosen."""
    rising = count()
    monkeypatch.setattr(LinearProbe, "score", lambda *_: next(rising))


def steps_with_torch(train: LabelledFeatures, recipe: SGDProbeSpec, seed: int) -> list[Tensor]:
    """Returns the weights [D + 1, L] after each step of autograd and torch.optim.SGD."""
    x, bits = train.features, train.labels["looks"]
    layer = torch.nn.Linear(x.shape[1], bits.shape[1])
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    sgd = torch.optim.SGD(
        layer.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay
    )
    generator = torch.Generator().manual_seed(seed)
    steps = []
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(recipe.batch_size):
            logits, y = layer(x[rows]), bits[rows] == 1
            each = F.binary_cross_entropy_with_logits(logits, y.float(), reduction="none")
            sgd.zero_grad()
            (each * (bits[rows] != 255)).sum(dim=1).mean().backward()
            sgd.step()
            steps.append(torch.cat([layer.weight.T, layer.bias[None]]).detach().clone())
    return steps


@pytest.mark.usefixtures("last_is_best")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_autograd_and_torch_sgd(momentum: float) -> None:
    changes = {"weight_decay": 0.01, "epochs": 2, "momentum": momentum}
    train, recipe = data(48), RECIPE.model_copy(update=changes)
    train.labels["looks"][::5, 1] = 255
    steps = steps_with_torch(train, recipe, 5)
    assert len(steps) == 6
    probe = trained(train, recipe, seed=5, val=train)
    torch.testing.assert_close(probe.weight, steps[-1], rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("last_is_best")
def test_an_unknown_bit_teaches_nothing_and_an_unknown_row_is_left_out() -> None:
    train, alone = data(100), data(100).labels["looks"].clone()

    def weight(taught: LabelledFeatures) -> Tensor:
        return trained(taught, val=train).weight

    alone[:, 1:] = 255
    masked = weight(with_bits(train, alone))
    torch.testing.assert_close(masked[:, 0], weight(train)[:, 0])
    assert (masked[:, 1:] == 0).all()
    some = train.labels["looks"].clone()
    some[50:] = 255
    half = LabelledFeatures(train.features[:50], {"looks": some[:50]})
    assert torch.equal(weight(with_bits(train, some)), weight(half))
