"""Labels of one training batch, and the legend of the package's shape suffixes.

B items of a batch    V views of an item    N = B * V rows    D width of an embedding
T tasks               C classes of a task   H, W image sides  K configurations or bootstraps
L labels of a set     G distinct labels or label sets of a batch
E examples of an epoch, P images of an example (1, or 3 for a triplet)
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Labels of the B items of a global batch, on the training device.

    labels[task] is int64 [B], MISSING (-1) where unknown.
    label_sets[task] is uint8 [B, L] of 0 and 1, UNKNOWN_BIT (255) where unknown.
    numbers[task] is float32 [B], NaN where unknown, standardised by the training split's mean and
    standard deviation.
    condition is int64 [B] in a batch of triplets, else None: the task of each triplet, as an index
    into the tasks with classes.

    Images stay on the rank that loaded them. Every rank has the labels of the global batch,
    because a contrastive loss compares each anchor with the rows of all ranks.
    """

    labels: dict[str, Tensor]
    num_items: int
    label_sets: dict[str, Tensor] = field(default_factory=dict)
    numbers: dict[str, Tensor] = field(default_factory=dict)
    condition: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """Returns all labels, in a fixed order."""
        columns = (self.labels, self.label_sets, self.numbers)
        given = [values for column in columns for values in column.values()]
        return given if self.condition is None else [*given, self.condition]
