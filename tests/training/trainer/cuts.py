"""Helpers for tests of resuming: interruption at a step, and comparison of runs."""

from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import torch

from mtcon_ray.training.trainer import Progress, Trainer
from tests.some import some

CPU = torch.device("cpu")
STEPS_PER_EPOCH = 4


def stop_before(step: int) -> Callable[[], bool]:
    """Returns a `should_stop` that is True once this process has done `step` steps."""
    return chain(repeat(False, step), repeat(True)).__next__


def assert_same(found: Any, expected: Any) -> None:
    """Checks that nested dicts of tensors and values are equal bit for bit."""
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


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
    assert_same(run.learner.state(), whole.learner.state())
