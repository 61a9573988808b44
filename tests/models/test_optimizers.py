"""The optimizers step as torch's own. That they import no compiler is a test of tests/cli."""

from typing import Any

import pytest
import torch
from torch import nn, optim

from mtcon_ray.models import optimizers


def trained(kind: Any, **fields: Any) -> list[torch.Tensor]:
    """Returns the weights after two steps and, from a saved state, two further steps."""
    weight = nn.Parameter(torch.tensor([1.0, -2.0]))

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = (weight**4).sum()
        value.backward()
        return value

    optimizer = kind([weight], **fields)
    for _ in range(2):
        optimizer.step(loss)
        state = optimizer.state_dict()
        optimizer = kind([weight], **fields)
        optimizer.load_state_dict(state)
        optimizer.step(loss)
    return [weight.detach(), *optimizer.state[weight].values()]


OPTIMIZERS = [
    ("SGD", {"lr": 0.01, "momentum": 0.9, "fused": True}),
    ("Adam", {"lr": 0.1, "fused": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.1}),
    ("LBFGS", {"max_iter": 3, "line_search_fn": "strong_wolfe"}),
]


@pytest.mark.parametrize(("name", "fields"), OPTIMIZERS)
def test_steps_are_torch_s_and_states_are_read(name: str, fields: dict[str, Any]) -> None:
    found = trained(getattr(optimizers, name), **fields)
    torch.testing.assert_close(found, trained(getattr(optim, name), **fields), rtol=0, atol=0)
