"""What the public losses refuse before they compute."""

import math

import torch
from torch import Tensor


def check_rows(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor with finite entries.

    Under torch.compile nobody looks at the entries.
    """
    if not z.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype, got {z.dtype}")
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
