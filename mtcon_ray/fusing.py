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
            self._call = torch.compile(self._function, fullgraph=True, dynamic=self._dynamic)
        try:
            return call_compiled(self._call, *args, **kwargs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler's errors are of any kind
            # It fails before anything is computed: the tensors are as they were.
            self._call = self._function
            log.warning("%s is not compiled: %s", self._function.__name__, reason(error))
            return self._function(*args, **kwargs)


def call_compiled(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Calls what torch.compile gave for one whole graph.

    Torch compiles a function for so many shapes in a process and no more. A process that trains
    one trial after another may meet more: then all that it has compiled before is dropped.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        if not _is_of_limit(error):
            raise
    torch.compiler.reset()
    return function(*args, **kwargs)


def _is_of_limit(error: Exception) -> bool:
    from torch._dynamo.exc import (
        FailOnRecompileLimitHit,
    )  # a second, without a compiler for nothing

    return isinstance(error, FailOnRecompileLimitHit)


def reason(error: Exception) -> str:
    """What a compiler's error says, in a line."""
    error = getattr(error, "inner_exception", error)  # torch names its own part before
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    return f"compiling failed: {type(error).__name__}: {first.strip()}"
