"""One training step's items, and the legend of shape suffixes used in the whole package.

B items of a batch    V views of an item    N = B * V rows    D width of an embedding
T tasks               C classes of a task   H, W image sides  K configurations or bootstraps
"""

from dataclasses import dataclass

from torch import Tensor

MISSING = -1


@dataclass(frozen=True)
class Batch:
    """Labels of the B items of one global step, on the training device.

    labels[task] is int64 [B], MISSING (-1) where unknown. The views themselves stay with the
    rank that made them; labels are whole on every rank, because a contrastive loss needs all.
    """

    labels: dict[str, Tensor]
    num_items: int
