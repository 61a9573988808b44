"""LARS against a plain implementation of its equations."""

import math

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.optimizer import Lars, make_optimizer, set_lr
from tests.problems import problem

SPEC = TrainSpec.model_validate({"optimizer": "lars", "momentum": 0.8, "weight_decay": 0.05})


def make() -> tuple[nn.Sequential, MTCon, Lars]:
    """Returns a network with batch norm, a method with learned weights, and their optimizer."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))
    method = MTCon(MTCon.Spec(), problem("a", "b"))
    optimizer = make_optimizer(network.double(), method.double(), SPEC)
    assert isinstance(optimizer, Lars)
    return network, method, optimizer


def draw_gradients(parameters: dict[str, nn.Parameter], step: int) -> dict[str, Tensor]:
    """Sets every gradient to numbers that depend on the step, and returns copies."""
    generator = torch.Generator().manual_seed(step)
    for parameter in parameters.values():
        parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return {name: p.grad.clone() for name, p in parameters.items() if p.grad is not None}


def plain_lars(
    weights: list[float], gradients: list[float], velocity: list[float], lr: float, adapted: bool
) -> tuple[list[float], list[float]]:
    """Returns the weights and the momentum after one step, number by number."""
    if adapted:
        gradients = [g + 0.05 * w for g, w in zip(gradients, weights, strict=True)]
        weight_norm = math.sqrt(sum(w * w for w in weights))
        gradient_norm = math.sqrt(sum(g * g for g in gradients))
        if weight_norm > 0 and gradient_norm > 0:
            gradients = [0.001 * weight_norm / gradient_norm * g for g in gradients]
    velocity = [0.8 * v + g for v, g in zip(velocity, gradients, strict=True)]
    return [w - lr * v for w, v in zip(weights, velocity, strict=True)], velocity


def test_every_step_is_that_of_the_equations() -> None:
    """Kernels and matrices are adapted and decayed; biases, norms and log variances are not."""
    network, method, optimizer = make()
    parameters = dict(network.named_parameters()) | dict(method.named_parameters())
    expected = {name: p.flatten().tolist() for name, p in parameters.items()}
    velocity = {name: [0.0] * len(numbers) for name, numbers in expected.items()}
    for step, lr in enumerate((3.0, 7.0, 2.0)):
        gradients = draw_gradients(parameters, step)
        set_lr(optimizer, lr)
        optimizer.step()
        for name, parameter in parameters.items():
            adapted = name in ("0.weight", "3.weight")
            before = expected[name], gradients[name].flatten().tolist(), velocity[name]
            expected[name], velocity[name] = plain_lars(*before, lr, adapted)
            assert parameter.flatten().tolist() == pytest.approx(expected[name], rel=1e-12), name


@pytest.mark.parametrize("zero", ["weights", "gradient"])
def test_weights_or_gradients_of_zero_take_a_plain_step(zero: str) -> None:
    """Without weight decay, since that would make the gradient differ from 0."""
    weight = nn.Parameter(torch.zeros(2, 2) if zero == "weights" else torch.ones(2, 2))
    weight.grad = torch.ones(2, 2) if zero == "weights" else torch.zeros(2, 2)
    Lars([{"params": [weight], "adapted_decay": 0.0}], lr=0.5).step()
    assert weight.tolist() == [[-0.5 if zero == "weights" else 1.0] * 2] * 2
