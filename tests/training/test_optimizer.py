"""Schedules of the learning rate, fields of optimizers, and the parameters with weight decay."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import RMSprop
from torch.optim.lr_scheduler import OneCycleLR, StepLR

from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.models.optimizers import SGD, Adam, AdamW
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training import optimizer as optimizers
from tests.problems import problem

EXPONENTIAL = {"lr_schedule": "exponential", "epochs": 3, "warmup_epochs": 0}
COSINE = {"epochs": 8, "warmup_epochs": 3, "lr": 0.4, "lr_final": 0.1}
STEPS = {"name": "step", "epochs": 2}


def rates(spec: TrainSpec, steps_per_epoch: int) -> list[float]:
    """Returns the rate of every step."""
    steps = range(spec.epochs * steps_per_epoch)
    return [optimizers.lr_at(step, spec, steps_per_epoch=steps_per_epoch) for step in steps]


SCHEDULES = [
    # Three warm-up steps at 1/4, 2/4 and 3/4 of the peak, the peak, then half a cosine.
    (COSINE, 1, [0.1, 0.2, 0.3, 0.4, 0.4 * (0.1 + 0.9 * 0.853553), 0.22, 0.4 * 0.231802, 0.04]),
    # A single step has the peak rate, not the cosine's end.
    ({"epochs": 1, "warmup_epochs": 0, "lr": 0.3}, 1, [0.3]),
    # The cosine has length zero.
    ({"epochs": 1, "warmup_epochs": 0.75, "lr": 1.0}, 4, [0.25, 0.5, 0.75, 1.0]),
    # After one and a half steps of warm-up the cosine starts half a step later.
    ({"epochs": 1, "warmup_epochs": 0.375, "lr": 1.0, "lr_final": 0}, 4, [0.4, 0.8, 0.75, 0.0]),
    ({**EXPONENTIAL, "lr": 0.8, "lr_final": 0.25}, 1, [0.8, 0.4, 0.2]),
    # Steps are counted from the end of warm-up.
    ({"epochs": 5, "lr": 1.0, "lr_schedule": STEPS}, 1, [0.5, 1, 1, 0.1, 0.1]),
]


@pytest.mark.parametrize(("fields", "steps_per_epoch", "expected"), SCHEDULES)
def test_warmup_is_a_line_and_a_schedule_ends_at_its_share(
    fields: dict[str, Any], steps_per_epoch: int, expected: list[float]
) -> None:
    spec = TrainSpec.model_validate(fields)
    assert rates(spec, steps_per_epoch) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("scaling", "peak"), [("none", 0.2), ("linear", 0.05), ("sqrt", 0.1)])
def test_peak_follows_the_batch(scaling: str, peak: float) -> None:
    """64 items are a quarter of the reference batch of 256."""
    fields = {"lr": 0.2, "batch_size": 64, "lr_scaling": scaling, "warmup_epochs": 0}
    spec = TrainSpec.model_validate(fields)
    assert optimizers.lr_at(0, spec, steps_per_epoch=3) == pytest.approx(peak)


@pytest.mark.parametrize("epochs", [1, 5])
def test_further_schedules_have_the_rates_of_torch(epochs: int) -> None:
    """With 3 steps per epoch. A training of a single epoch has no fall."""
    start = SGD([torch.zeros(1)], lr=0.4)
    cycle = {"pct_start": 0.4, "div_factor": 10.0, "final_div_factor": 50.0}
    peers = {
        "step": StepLR(SGD([torch.zeros(1)], lr=0.4), step_size=2 * 3, gamma=0.3),
        "one_cycle": OneCycleLR(start, 0.4, total_steps=3 * epochs, **cycle),  # type: ignore[arg-type]
    }
    one_cycle = {"name": "one_cycle", "pct_start": 0.4, "div_factor": 10}
    schedules = {"step": {**STEPS, "gamma": 0.3}, "one_cycle": one_cycle}
    for name, peer in peers.items():
        expected = []
        for _ in range(3 * epochs):
            expected.append(peer.get_last_lr()[0])
            peer.optimizer.step()
            peer.step() if len(expected) < 3 * epochs else None
        given = {"epochs": epochs, "lr": 0.4, "lr_schedule": schedules[name], "lr_final": 1 / 500}
        spec = TrainSpec.model_validate({**given, "warmup_epochs": 0 if name == "step" else None})
        assert rates(spec, 3) == pytest.approx(expected, rel=1e-9)


OWN_FIELDS = [
    ({"optimizer": {"name": "sgd", "nesterov": True}}, {"nesterov": True, "momentum": 0.9}),
    ({"optimizer": "sgd", "momentum": 0}, {"nesterov": False, "momentum": 0}),
    ({"optimizer": {"name": "adam", "beta2": 0.9}}, {"betas": (0.9, 0.9), "eps": 1e-8}),
    ({"optimizer": {"name": "adamw", "eps": 1e-3}}, {"betas": (0.9, 0.999), "eps": 1e-3}),
]


@pytest.mark.parametrize(("train", "expected"), OWN_FIELDS)
def test_the_optimizers_own_fields(train: dict[str, Any], expected: dict[str, Any]) -> None:
    method = MTCon(MTCon.Spec(), problem("a"))
    optimizer = optimizers.make_optimizer(nn.Linear(2, 2), method, TrainSpec.model_validate(train))
    assert expected.items() <= optimizer.param_groups[0].items()
    assert all(group["fused"] for group in optimizer.param_groups)


@pytest.mark.parametrize(("name", "kind"), [("adam", Adam), ("adamw", AdamW)])
def test_adam_has_the_groups_and_takes_the_rates(name: str, kind: type[Adam]) -> None:
    """Only matrices decay; momentum is beta 1; the first step has the length of the rate."""
    network = nn.Linear(2, 2)
    method = MTCon(MTCon.Spec(), problem("a", "b"))
    spec = TrainSpec.model_validate({"optimizer": name, "momentum": 0.8, "weight_decay": 0.5})
    optimizer = optimizers.make_optimizer(network, method, spec)
    assert type(optimizer) is kind
    groups = [[network.weight], [network.bias], list(method.parameters())]
    assert [g["params"] for g in optimizer.param_groups] == groups
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.5, 0, 0]
    assert {g["betas"] for g in optimizer.param_groups} == {(0.8, 0.999)}
    before = network.bias.detach().clone()
    network.bias.grad = torch.tensor([3.0, -0.01])
    optimizers.set_lr(optimizer, 1e-3)
    optimizer.step()
    assert (network.bias.detach() - before).tolist() == pytest.approx([-1e-3, 1e-3], rel=1e-3)


def test_frozen_parameters_and_methods_without_any_are_left_out() -> None:
    """There is no parameter group without parameters."""
    network = nn.Linear(2, 2).requires_grad_(False)
    network.bias.requires_grad_(True)
    method = MTCon(MTCon.Spec(weighting="equal"), problem("a"))
    (group,) = optimizers.make_optimizer(network, method, TrainSpec()).param_groups
    assert group["params"] == [network.bias]


def test_a_plugin_s_optimizer_begins_with_its_own_state() -> None:
    """Its groups may have a momentum, and it may look whether a parameter has a state."""
    weight = nn.Parameter(torch.zeros(2))
    weight.grad = torch.ones(2)
    for kind, number in ((RMSprop, 0), (torch.optim.SGD, 1)):
        optimizer = kind([weight], lr=0.1, momentum=0.9)
        optimizers.start_momentum(optimizer)
        assert len(optimizer.state[weight]) == number
