"""Checks of the public losses' arguments."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Check = Callable[[Tensor], None]


def unchecked(_: Tensor) -> None:
    """Accepts any rows: for callers that need no check, or must avoid a device synchronisation."""


def check_rows(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor with finite entries."""
    check_floating(z, name)
    check_finite(z, name)


def check_floating(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor."""
    if not z.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype, got {z.dtype}")


def check_finite(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless all entries are finite. Causes a device synchronisation."""
    # A sum is one pass without a temporary mask. It is NaN or inf if an entry is; a sum of finite
    # entries can overflow too, so only then are the entries themselves checked.
    if math.isfinite(z.detach().sum(dtype=torch.promote_types(z.dtype, torch.float32)).item()):
        return
    bad = int((~torch.isfinite(z)).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} of {z.numel()} entries nan or inf")


def check_missing(missing: str) -> None:
    """Raises ValueError unless missing is "skip" or "self_only"."""
    if missing not in ("skip", "self_only"):
        raise ValueError(f"missing must be 'skip' or 'self_only', got {missing!r}")
