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
    """Returns the values on `device`, as `send` does, but to CUDA in one copy.

    A copy of a few numbers costs its launch. The values share memory there.
    """
    if device.type != "cuda":
        return [send(each, device) for each in values]
    # The widest first: a value must begin at a multiple of its element's size.
    order = sorted(range(len(values)), key=lambda i: -values[i].element_size())
    parts = [values[i].contiguous().view(-1).view(torch.uint8) for i in order]
    pieces = send(torch.cat(parts), device).split([len(part) for part in parts])
    found = {
        i: piece.view(values[i].dtype).view(values[i].shape)
        for i, piece in zip(order, pieces, strict=True)
    }
    return [found[i] for i in range(len(values))]
