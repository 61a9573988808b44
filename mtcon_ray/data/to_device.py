"""Copies from host memory to the training device."""

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """Returns the values on `device`, copied asynchronously.

    From CPU to CUDA the values are pinned first: without pinned memory `non_blocking` has no
    effect and the copy blocks the host.
    """
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
