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
    given = [values[i].clone(memory_format=torch.contiguous_format) for i in order]
    packed = send(torch.cat([each.flatten().view(torch.uint8) for each in given]), device)
    pieces = packed.split([each.nbytes for each in given])
    found = {
        i: piece.view(each.dtype).view(each.shape)
        for i, piece, each in zip(order, pieces, given, strict=True)
    }
    return [found[i] for i in range(len(values))]
