"""Check of the rows that are given to public losses."""

import math

import torch
from torch import Tensor


def check_rows(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor with finite entries.

    Causes a device synchronisation.
    """
    check_floating(z, name)
    # A sum is one pass without a temporary mask. It is NaN or inf if an entry is; a sum of finite
    # entries can overflow too, so only then are the entries themselves checked.
    if math.isfinite(z.detach().sum(dtype=torch.promote_types(z.dtype, torch.float32)).item()):
        return
    bad = int((~torch.isfinite(z)).sum())
    if bad:
        raise ValueError(f"{name} must be finite, got {bad} of {z.numel()} entries nan or inf")


def check_floating(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor."""
    if not z.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype, got {z.dtype}")
