"""Helpers for tests of resuming: interruption at a step, and comparison of runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtcon_ray.training.trainer import Progress, Trainer
from tests.some import some

CPU = torch.device("cpu")
STEPS_PER_EPOCH = 4


def stop_before(step: int) -> Callable[[], bool]:
    """Returns a `should_stop` that is True once this process has done `step` steps."""
    left = step

    def should_stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    return should_stop


def parameters(run: Trainer) -> dict[str, Tensor]:
    """Returns all tensors that training changes, including momentum buffers, by name."""
    momentum = run.learner.optimizer.state_dict()["state"]
    return {
        **run.network.state_dict(),
        **run.learner.method.state_dict(),
        **{f"momentum {key}": value["momentum_buffer"] for key, value in momentum.items()},
    }


def untimed(progress: Progress) -> dict[str, Any]:
    """Returns the fields of a Progress without its rate, which is not reproducible."""
    values = {k: v for k, v in progress.metrics.items() if k != "images_per_second"}
    return {**vars(progress), "metrics": values}


def check_same_end(run: Trainer, epochs: list[Progress], whole: Trainer) -> None:
    """Checks that a resumed run ends like `whole`: bit-equal parameters, best value, last epoch."""
    assert run.done
    assert run.best == whole.best
    assert untimed(some(run.last)) == untimed(some(whole.last))
    assert [p.epoch for p in epochs] == [1, 2, 3]
    for name, value in parameters(whole).items():
        assert torch.equal(parameters(run)[name], value), name
