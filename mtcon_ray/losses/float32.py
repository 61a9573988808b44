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
    """Decorates a loss: autocast is off, and half-precision arguments become float32.

    The first positional argument must be a tensor; its device is the one of autocast.
    """

    @wraps(loss)
    def wrapped(z: Tensor, *args: Any, **options: Any) -> Any:
        with full_precision(z.device):
            named = {name: at_least_float32(x) for name, x in options.items()}
            return loss(*map(at_least_float32, (z, *args)), **named)

    return cast(AnyLoss, wrapped)


def at_least_float32(x: Any) -> Any:
    """Returns a tensor of half precision in float32, and anything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x
