"""A stand-in for CUDA graphs on the CPU: repeats recorded operations on the same tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")
# Operations that read a value, in which a capture fails.
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
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}\nat a")
        result = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, result))
        return result


class CpuRecorder:
    """Records as a CUDA graph is captured: Python is not run again, and tensors keep their place.

    Unlike a capture a recording executes the operations, so the first repetition does nothing.
    """

    def __init__(self) -> None:
        self.num_recordings = 0
        self.num_repetitions = 0

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Does nothing."""
        yield

    def record(self, do: Callable[[], T]) -> tuple[Callable[[], None], T]:
        """Returns a function that repeats the operations of `do`, and what that returned."""
        self.num_recordings += 1
        with _Recording() as recording:
            result = do()
        is_first = [True]

        @torch.no_grad()
        def repeat() -> None:
            self.num_repetitions += 1
            if is_first:
                is_first.clear()
                return
            for func, args, kwargs, before in recording.operations:
                now = func(*args, **kwargs)
                for goal, found in zip(tree_leaves(before), tree_leaves(now), strict=True):
                    if isinstance(goal, Tensor) and goal.data_ptr() != found.data_ptr():
                        goal.copy_(found)

        return repeat, result
