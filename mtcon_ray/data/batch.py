"""A training batch's labels and way to the device, and the legend of shape suffixes.

B items of a batch    V views of an item    N = B * V rows    D width of an embedding
T tasks               C classes of a task   H, W image sides  K configurations or bootstraps
L labels of a set     G distinct labels or label sets of a batch
E examples of an epoch, P images of an example (1, or 3 for a triplet)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Labels of the B items of a global batch, on the training device.

    labels[task] is int64 [B], MISSING (-1) where unknown.
    label_sets[task] is uint8 [B, L] of 0 and 1, UNKNOWN_BIT (255) where unknown.
    condition is int64 [B] in a batch of triplets, else None: the task of each triplet, as an index
    into the tasks with classes.

    Images stay on the rank that loaded them. Every rank has the labels of the global batch,
    because a contrastive loss compares each anchor with the rows of all ranks.
    """

    labels: dict[str, Tensor]
    num_items: int
    label_sets: dict[str, Tensor] = field(default_factory=dict)
    condition: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Returns all labels, in a fixed order."""
        given = [*self.labels.values(), *self.label_sets.values()]
        return given if self.condition is None else [*given, self.condition]


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
    found = [*values]
    for i, piece, each in zip(order, pieces, given, strict=True):
        found[i] = piece.view(each.dtype).view(each.shape)
    return found
