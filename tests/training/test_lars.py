"""LARS against a plain implementation of its equations."""

import pytest
import torch
from torch import nn

from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.optimizer import Lars, make_optimizer, set_lr
from tests.problems import problem

SPEC = TrainSpec.model_validate({"optimizer": "lars", "momentum": 0.8, "weight_decay": 0.05})


def test_every_step_is_that_of_the_equations() -> None:
    """Kernels and matrices are adapted and decayed; biases, norms and log variances are not."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))
    method = MTCon(MTCon.Spec(), problem("a", "b"))
    optimizer = make_optimizer(network.double(), method.double(), SPEC)
    parameters = dict(network.named_parameters()) | dict(method.named_parameters())
    expected = {name: p.detach().clone() for name, p in parameters.items()}
    velocity = {name: torch.zeros_like(weight) for name, weight in expected.items()}
    for lr in (3.0, 7.0, 2.0):
        gradients = {name: torch.randn_like(weight) for name, weight in expected.items()}
        for name, parameter in parameters.items():
            parameter.grad = gradients[name].clone()
        set_lr(optimizer, lr)
        optimizer.step()
        for name, parameter in parameters.items():
            gradient, weight = gradients[name], expected[name]
            if name in ("0.weight", "3.weight"):
                gradient = gradient + 0.05 * weight
                gradient = 0.001 * weight.norm() / gradient.norm() * gradient
            velocity[name] = 0.8 * velocity[name] + gradient
            expected[name] = weight - lr * velocity[name]
            torch.testing.assert_close(parameter.data, expected[name], rtol=1e-12, atol=0)


@pytest.mark.parametrize("zero", ["weights", "gradient"])
def test_weights_or_gradients_of_zero_take_a_plain_step(zero: str) -> None:
    """Without weight decay, since that would make the gradient differ from 0."""
    weight = nn.Parameter(torch.zeros(2, 2) if zero == "weights" else torch.ones(2, 2))
    weight.grad = torch.ones(2, 2) if zero == "weights" else torch.zeros(2, 2)
    Lars([{"params": [weight], "adapted_decay": 0.0}], lr=0.5).step()
    assert weight.tolist() == [[-0.5 if zero == "weights" else 1.0] * 2] * 2
