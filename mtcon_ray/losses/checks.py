"""What the public losses refuse before they compute."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Check = Callable[[Tensor], None]


def unchecked(_: Tensor) -> None:
    """For rows that a caller knows to be finite, or would rather not look at."""


def check_rows(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor with finite entries."""
    check_floating(z, name)
    check_finite(z, name)


def check_floating(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor."""
    if not z.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype, got {z.dtype}")


def check_finite(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless all entries are finite; under torch.compile nobody looks."""
    if torch.compiler.is_compiling():
        return
    # One cheap look; only a sum that is not finite is looked into.
    if math.isfinite(z.detach().sum(dtype=torch.promote_types(z.dtype, torch.float32)).item()):
        return
    bad = int((~torch.isfinite(z)).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} of {z.numel()} entries nan or inf")


def check_missing(missing: str) -> None:
    """Raises ValueError for an unknown word."""
    if missing not in ("skip", "self_only"):
        raise ValueError(f"missing must be 'skip' or 'self_only', got {missing!r}")
