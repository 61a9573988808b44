"""Functions that torch.compile fuses into few kernels, where a training asks for it.

Which ones, is said where they stand; whether, by the training around them. Anybody else calls them
as they are, and a compiler that is under way already sees through.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

import torch

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# What is compiled for nine shapes in fewer calls than these takes longer to compile than to run.
CALLS = 100

_asked: ContextVar[bool] = ContextVar("fused", default=False)


@contextmanager
def fused(asked: bool = True) -> Iterator[None]:
    """Within, functions of this thread that can be fused are, if asked."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


class fusible(Generic[P, R]):
    """Decorator of a function of tensors: within `fused` it is compiled, once in a process.

    `dynamic` as of torch.compile: True where the tensors' sizes change from call to call. Where
    compiling fails the reason is logged once, and the function is called as it is from then on.
    """

    def __init__(self, function: Callable[P, R], *, dynamic: bool | None = None) -> None:
        update_wrapper(self, function)
        self._function = function
        self._dynamic = dynamic
        self._call: Callable[P, R] | None = None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        is_plain = self._call is self._function or torch.compiler.is_compiling()
        if is_plain or not _asked.get():
            return self._function(*args, **kwargs)
        if self._call is None:
            # Not before: the import of torch's compiler takes a second.
            self._call = Renewing(
                torch.compile(self._function, fullgraph=True, dynamic=self._dynamic)
            )
        try:
            return self._call(*args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler's errors are of any kind
            # It fails before anything is computed: the tensors are as they were.
            self._call = self._function
            log.warning("%s is not compiled: %s", self._function.__name__, reason(error))
            return self._function(*args, **kwargs)


class Renewing(Generic[P, R]):
    """What torch.compile gave for one whole graph, for any number of shapes in a process.

    Torch compiles a function for eight and then fails. A process that trains one trial after
    another may meet more: then all that it has compiled is dropped and compiled again, once in
    CALLS calls at the most; a function that is compiled more often fails.
    """

    def __init__(self, compiled: Callable[P, R]) -> None:
        self._compiled = compiled
        self._calls = CALLS

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self._calls += 1
        try:
            return self._compiled(*args, **kwargs)
        except Exception as error:
            if self._calls < CALLS or not _is_of_limit(error):
                raise
        self._calls = 0
        torch.compiler.reset()
        return self._compiled(*args, **kwargs)


def _is_of_limit(error: Exception) -> bool:
    # Not at the top: without a compiler its second of import would be for nothing.
    from torch._dynamo.exc import FailOnRecompileLimitHit

    return isinstance(error, FailOnRecompileLimitHit)


def reason(error: Exception) -> str:
    """What a compiler's error says, in a line."""
    error = getattr(error, "inner_exception", error)  # torch names its own part before
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"compiling failed: {type(error).__name__}: {first.strip()}"
