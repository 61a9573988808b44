"""From the host to the device that trains."""

import torch
from torch import Tensor


def send(values: Tensor, device: torch.device) -> Tensor:
    """The values on the device; the host does not wait until they are there."""
    if device.type == "cuda" and values.device.type == "cpu":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
