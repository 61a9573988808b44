"""Tests of the SGD probe of a label set: steps, masking, and selection on validation."""

from itertools import count

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.average_precision import mean_average_precision
from mtcon_ray.evaluation.probe import LabelledFeatures, SetProbe
from mtcon_ray.evaluation.sgd import asymmetric_loss, train_probes
from mtcon_ray.spec.evaluate import LabelSetsSpec, SGDProbeSpec

RECIPE = SGDProbeSpec(solver="sgd", epochs=4, batch_size=16, lr=0.1, momentum=0.9)
BCE = LabelSetsSpec()


def data(n: int = 200, seed: int = 0, L: int = 3) -> LabelledFeatures:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator)
    directions = torch.randn(4, L, generator=torch.Generator().manual_seed(9))
    noisy = x @ directions + torch.randn(n, L, generator=generator)
    return LabelledFeatures(x, {"looks": (noisy > 0.5).to(torch.uint8)})


def trained(
    train: LabelledFeatures, recipe: SGDProbeSpec = RECIPE, sets: LabelSetsSpec = BCE, *,
    val: LabelledFeatures, seed: int = 0,
) -> SetProbe:  # fmt: skip
    probe = train_probes(train, {}, recipe, sets, seed=seed, val=val)["looks"]
    assert isinstance(probe, SetProbe)
    return probe


def with_bits(features: LabelledFeatures, bits: Tensor) -> LabelledFeatures:
    return LabelledFeatures(features.features, {"looks": bits})


@pytest.fixture
def last_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes each epoch score higher on val than the one before, so that the last is chosen."""
    rising = count()
    monkeypatch.setattr(SetProbe, "score", lambda *_: next(rising))


def steps_with_torch(
    train: LabelledFeatures, recipe: SGDProbeSpec, seed: int, loss: str = "bce"
) -> list[Tensor]:
    """Returns the weights [D + 1, L] after each step of autograd and torch.optim.SGD."""
    x, bits = train.features, train.labels["looks"]
    layer = torch.nn.Linear(x.shape[1], bits.shape[1])
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    sgd = torch.optim.SGD(
        layer.parameters(), recipe.rates[0], recipe.momentum, weight_decay=recipe.weight_decay
    )
    generator = torch.Generator().manual_seed(seed)
    steps = []
    for _ in range(recipe.epochs):
        for rows in torch.randperm(len(x), generator=generator).split(recipe.batch_size):
            logits, y = layer(x[rows]), bits[rows] == 1
            each = F.binary_cross_entropy_with_logits(logits, y.float(), reduction="none")
            each = each if loss == "bce" else asymmetric_loss(logits, y)
            sgd.zero_grad()
            (each * (bits[rows] != 255)).sum(dim=1).mean().backward()
            sgd.step()
            steps.append(torch.cat([layer.weight.T, layer.bias[None]]).detach().clone())
    return steps


@pytest.mark.usefixtures("last_is_best")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("loss", ["bce", "asymmetric"])
def test_steps_are_those_of_autograd_and_torch_sgd(loss: str, momentum: float) -> None:
    changes = {"weight_decay": 0.01, "epochs": 2, "momentum": momentum}
    train, recipe = data(48), RECIPE.model_copy(update=changes)
    train.labels["looks"][::5, 1] = 255
    steps = steps_with_torch(train, recipe, 5, loss)
    assert len(steps) == 6
    sets = LabelSetsSpec.model_validate({"loss": loss})
    probe = trained(train, recipe, sets, seed=5, val=train)
    torch.testing.assert_close(probe.weight, steps[-1], rtol=1e-4, atol=1e-6)


def test_the_asymmetric_loss_is_its_formula() -> None:
    logits = torch.tensor([2.0, -1.0, -4.0], dtype=torch.float64)
    p = logits.sigmoid()
    assert asymmetric_loss(logits, torch.tensor(True)).tolist() == pytest.approx(
        (-p.log()).tolist()
    )
    negative = asymmetric_loss(logits, torch.tensor(False)).tolist()
    q = p - 0.05
    assert negative[:2] == pytest.approx((-(q**4) * (1 - q).log())[:2].tolist())
    assert negative[2] == 0  # p is below the margin of 0.05


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


def test_of_several_rates_the_best_on_val_is_kept() -> None:
    """A rate that diverges is skipped; it is an error if all diverge."""
    train, val, rates = data(seed=3), data(seed=4), (1e-4, 1e38, 0.1)
    best = {}
    for rate in (1e-4, 0.1):
        one = RECIPE.model_copy(update={"lr": rate})
        probe = trained(train, one, val=val)
        best[mean_average_precision(probe.scores(val.features), val.labels["looks"])] = probe
    several = RECIPE.model_copy(update={"lr": rates})
    chosen = trained(train, several, val=val)
    assert len(best) == 2
    assert torch.equal(chosen.weight, best[max(best)].weight)
    broken = LabelledFeatures(val.features * torch.inf, val.labels)
    with pytest.raises(DivergedError):
        trained(train, several, val=broken)


def test_the_better_of_weights_and_their_average_counts() -> None:
    """With a rate that is far too high, the moving average is better than the weights."""
    train, val = data(64, seed=1), data(400, seed=3)
    recipe = SGDProbeSpec(solver="sgd", epochs=3, batch_size=4, lr=8.0, momentum=0.9)

    def best(ema: float | None) -> float:
        sets = LabelSetsSpec(ema=ema)
        probe = trained(train, recipe, sets, val=val)
        return mean_average_precision(probe.scores(val.features), val.labels["looks"])

    assert best(0.98) > best(None) + 0.005
    assert best(0.0) == best(None)
