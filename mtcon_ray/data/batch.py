"""One training step's items, and the legend of shape suffixes used in the whole package.

B items of a batch    V views of an item    N = B * V rows    D width of an embedding
T tasks               C classes of a task   H, W image sides  K configurations or bootstraps
L labels of a set     G distinct labels or label sets of a batch
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

MISSING = -1
UNKNOWN_BIT = 255  # in a label set, which is uint8

# What a task's labels are: one of several classes, a set of labels, or a number.
Kind = Literal["classes", "set", "number"]


@dataclass(frozen=True)
class Batch:
    """Labels of the B items of one global step, on the training device.

    labels[task] is int64 [B], MISSING (-1) where unknown; label_sets[task] uint8 [B, L] of 0 and
    1, UNKNOWN_BIT where unknown; numbers[task] float32 [B], NaN where unknown, standardised: in
    deviations from the mean, both of the training split. In a batch of triplets condition is
    int64 [B], the task by which each was drawn, as an index of those that have classes.
    The views themselves stay with the rank that made them; labels are whole on every rank,
    because a contrastive loss needs all.
    """

    labels: dict[str, Tensor]
    num_items: int
    label_sets: dict[str, Tensor] = field(default_factory=dict)
    numbers: dict[str, Tensor] = field(default_factory=dict)
    condition: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """What a method is built for.

    kinds are those of the tasks, in order. sizes are a task's number of classes, of labels in a
    set, or 1 for a number; they are empty while only a spec is checked and no label is read.
    encoder is the name of the encoder.
    """

    kinds: Mapping[str, Kind]
    batch_size: int
    num_views: int
    head_dim: int
    head_hidden: int | None
    encoder: str
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in order."""
        return tuple(self.kinds)

    def of_kind(self, kind: Kind) -> tuple[str, ...]:
        """Names of the tasks of one kind, in order."""
        return tuple(task for task, k in self.kinds.items() if k == kind)
