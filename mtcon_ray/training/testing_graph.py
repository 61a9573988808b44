"""Test of a step as a CUDA graph, on the CPU: recorded operations are repeated on their tensors."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mtcon_ray.losses import tiled_logsumexp
from mtcon_ray.training.step_graph import WARM_UP, Recorder, StepGraph
from mtcon_ray.training.trainer import Trainer

T = TypeVar("T")
# Operations that read a value. A capture fails in these operations.
READS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2"}


class _Recording(TorchDispatchMode):
    """Executes operations, and keeps them with their arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in READS:
            # CUDA's messages have advice in further lines.
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}\nadvice")
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result


class CpuRecorder(Recorder):
    """Records as a CUDA graph is captured: Python is not run again, and tensors keep their place.

    Unlike a capture a recording executes the operations, so the first repetition does nothing.
    """

    beside: Any = nullcontext  # a CPU has no streams

    def __init__(self) -> None:
        self.num_recordings = 0
        self.num_repetitions = 0

    def record(self, do: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """Returns a function that repeats the operations of `do`, and the result of `do`."""
        self.num_recordings += 1
        with _Recording() as recording:
            result = do()
        due: list[tuple[Any, Any, Any, Any]] = []  # the recording has executed all

        @torch.no_grad()
        def repeat() -> None:
            self.num_repetitions += 1
            for func, args, kwargs, before in due:
                now = func(*args, **kwargs)
                for goal, found in zip(tree_leaves(before), tree_leaves(now), strict=True):
                    if isinstance(goal, Tensor) and goal.data_ptr() != found.data_ptr():
                        goal.copy_(found)
            due[:] = recording.operations

        return repeat, result


def as_on_a_gpu() -> AbstractContextManager[object]:
    """Returns a context for choices by a value, which only a CPU reads without waiting."""
    return patch.object(tiled_logsumexp, "exponents_fit", lambda x: False)


def check_step_graph(plain: Trainer, graph: Trainer, *, num_steps: int = WARM_UP + 4) -> None:
    """Checks that a training with repeats of a recorded step ends like a plain training.

    Both must be new. Two kinds of steps fail the check: a step with a value computed by Python in
    every step, and a step that reads a value from the device.
    """
    recorder = CpuRecorder()
    graph._graph = StepGraph(graph.learner, recorder)
    with as_on_a_gpu():
        for run in (plain, graph):
            for _ in range(num_steps):
                run._train_step()
            run.learner.check()
    check_same_state(graph, plain)
    phases = recorder.num_recordings
    assert recorder.num_repetitions == num_steps - phases * WARM_UP > 0


def check_same_state(found: Trainer, expected: Trainer) -> None:
    """Checks that two trainings agree in everything changed by their steps."""
    ours, theirs = ([run.learner.state(), run._tally.losses] for run in (found, expected))
    # The learning rate is float32 in a graph, and float64 without.
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
