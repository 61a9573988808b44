"""Disables autocast for losses and converts half precision to float32.

exp(1 / temperature) overflows float16 below a temperature of 0.09.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

AnyLoss = TypeVar("AnyLoss", bound=Callable[..., Any])


def full_precision(device: torch.device) -> AbstractContextManager[None]:
    """Returns a context in which autocast is off."""
    # A no-op if autocast is off: entering torch.autocast takes as long as an operation on a small
    # batch.
    if not torch.is_autocast_enabled(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def in_full_precision(loss: AnyLoss) -> AnyLoss:
    """Decorates a loss: autocast is off, and tensor arguments are float32 unless float64.

    The first positional argument must be a tensor; its device is the one of autocast.
    """

    @wraps(loss)
    def wrapped(z: Tensor, *args: Any, **options: Any) -> Any:
        with full_precision(z.device):
            named = {name: _full(x) for name, x in options.items()}
            return loss(_full(z), *map(_full, args), **named)

    return cast(AnyLoss, wrapped)


def _full(x: Any) -> Any:
    return x.float() if isinstance(x, Tensor) and x.dtype != torch.float64 else x
