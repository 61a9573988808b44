"""A step as one CUDA graph (`train.compile: graphs`).

A step is some hundred kernels of a few microseconds each. Launching them one by one from Python
takes several times as long as they run, unless images and batches are large. A CUDA graph is
recorded once, in a step that executes nothing (the capture), and then launched as a whole (a
replay).

A replay runs the same kernels on the same memory. So everything different between two steps lies in
tensors filled before each replay: views, labels, learning rates and the step's number.
State for the next step is changed in place.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from mtcon_ray.data.batch import Batch, send_together
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.batches import Chunks
from mtcon_ray.training.step import Learner, Update, make_step

log = logging.getLogger(__name__)

T = TypeVar("T")

# Steps before a capture. In these the optimizer allocates its state, cuDNN times its algorithms,
# and libraries allocate their permanent memory. A capture may contain none of this.
WARM_UP = 3
WITHOUT = "train.compile graphs: trains without graphs, because %s"


class Recorder:
    """Records operations on a device as CUDA graphs, to repeat them."""

    def __init__(self, device: torch.device) -> None:
        # One stream for all: gradient-accumulating nodes belong to the stream of their first use.
        self._stream = torch.cuda.Stream(device)

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Runs operations inside on the captures' stream, in order with the operations around.

        The steps before a recording run inside.
        """
        current = torch.cuda.current_stream(self._stream.device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def record(self, do: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """Returns a function that repeats the operations of `do`, and the result of `do`.

        The operations are not executed until they are repeated. Raises RuntimeError if a graph
        cannot contain an operation.
        """
        graph = torch.cuda.CUDAGraph()
        # Other threads may continue to use the GPU, such as a thread that writes a checkpoint.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            result = do()
        return graph.replay, result


def make_graph(learner: Learner, train: TrainSpec, device: torch.device) -> "StepGraph | None":
    """Returns the graph that makes the steps with `train.compile: graphs`, else None.

    Also returns None if no graph can be captured, and logs the reason.
    """
    if train.compile == "none":
        return None
    is_plugin = not isinstance(made := learner.optimizer, SGD | Adam) or not made.defaults["fused"]
    has_parts = (train.chunk_size or train.batch_size) < train.batch_size
    reasons = {
        "CUDA graphs need a GPU": device.type != "cuda",
        "the exchange of several workers cannot be captured": learner.ranks.world > 1,
        "float16 scales its loss on the host": learner.scaler.is_enabled(),
        "train.chunk_size computes a step in parts": has_parts,
        "a plugin's optimizer may compute on the host": is_plugin,
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        log.warning(WITHOUT, found[0])
        return None
    return StepGraph(learner, Recorder(device))


class StepGraph:
    """Makes steps as `make_step` does, from the fourth on by replaying a CUDA graph.

    Each phase of the network has a graph of its own. If capturing fails, `make_step` itself makes
    all further steps, and the reason is logged. A step overwrites the result of the previous step.
    """

    def __init__(self, learner: Learner, recorder: Recorder) -> None:
        self._learner, self._recorder = learner, recorder
        self._phase = learner.network.phase
        self._steps = 0  # of this phase
        # The memory that graphs read: views, labels, the step's number, each group's learning rate.
        self._inputs: tuple[list[Tensor], Batch] | None = None
        self._recorded: tuple[Callable[[], None], Update] | None = None
        self._works = True

    def __call__(self, chunks: Chunks, batch: Batch, step: int) -> Update:
        """Makes a step after `prepare`. There must be one chunk."""
        learner, (views,) = self._learner, chunks
        if learner.network.phase != self._phase:
            # Freed now, not when it is replaced: the next graph may need the memory.
            self._phase, self._steps, self._recorded = learner.network.phase, 0, None
        self._steps += 1
        if not self._works or self._steps <= WARM_UP:
            with self._recorder.beside():
                return make_step(learner, chunks, batch, step)
        number = torch.tensor(step, dtype=torch.float64)
        rates = torch.tensor([group["lr"] for group in learner.optimizer.param_groups])
        given = [views(), *batch.tensors()]
        given += send_together([number, rates], given[0].device)
        if self._inputs is None:
            self._inputs = given, batch
        else:
            torch._foreach_copy_(self._inputs[0], given)
        if self._recorded is None:
            try:
                self._recorded = self._capture(*self._inputs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                # Its context is the operation's own error. The capture then ends with another.
                reason = str(error.__context__ or error).strip().partition("\n")[0]
                log.warning(WITHOUT, f"capturing failed: {reason}")
                self._works = False
                return self(chunks, batch, step)
        replay, done = self._recorded
        replay()
        return done

    def _capture(self, inputs: list[Tensor], batch: Batch) -> tuple[Callable[[], None], Update]:
        views, *_, step, rates = inputs
        with rates_from(rates, self._learner.optimizer):
            return self._recorder.record(partial(make_step, self._learner, views, batch, step))


@contextmanager
def rates_from(rates: Tensor, optimizer: Optimizer) -> Iterator[None]:
    """Lets the optimizer read each group's learning rate from the device's memory."""
    groups = optimizer.param_groups
    before = [dict(group) for group in groups]
    for group, rate in zip(groups, rates.unbind(), strict=True):
        group["lr"] = rate
        if "capturable" in group:  # Adam refuses a capture without it
            group["capturable"] = True
    try:
        yield
    finally:
        for group, kept in zip(groups, before, strict=True):
            group.update(kept)
