"""Copies from host memory to the training device."""

from collections.abc import Sequence

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


def send_together(values: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Returns the values on `device`, as `send` does, but makes a single copy to CUDA.

    Small copies are dominated by launch overhead. The results share memory on the device.
    """
    if device.type != "cuda":
        return [send(each, device) for each in values]
    # The widest first: a value must begin at a multiple of its element's size.
    order = sorted(range(len(values)), key=lambda i: -values[i].element_size())
    packed = torch.empty(sum(each.nbytes for each in values), dtype=torch.uint8)
    for i, place in zip(order, _places(packed, values, order), strict=True):
        place.copy_(values[i])
    found = dict(zip(order, _places(send(packed, device), values, order), strict=True))
    return [found[i] for i in range(len(values))]


def _places(packed: Tensor, values: Sequence[Tensor], order: Sequence[int]) -> list[Tensor]:
    """Returns the part of the bytes for each value, in this order, with the value's shape."""
    pieces = packed.split([values[i].nbytes for i in order])
    return [
        piece.view(values[i].dtype).view(values[i].shape)
        for i, piece in zip(order, pieces, strict=True)
    ]
