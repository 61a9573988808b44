"""Softmax cross-entropy over rows with and without labels."""

import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.numeric import in_full_precision
from mtcon_ray.spec.problem import MISSING


@in_full_precision
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Returns the mean over labelled rows of -log softmax(logits)[label], a scalar in nats.

    logits are [B, C], or [B, V, C] with V views per item, each a row with the item's label.
    labels are int64 [B], -1 where unknown. Half precision is computed in float32. A batch without
    labels has loss 0, with gradient 0.

    >>> import torch
    >>> round(cross_entropy(torch.zeros(3, 4), torch.tensor([0, 3, -1])).item(), 4)  # log 4
    1.3863
    """
    # The product of the axes between item and class is the number of views, 1 without any.
    labels = labels.repeat_interleave(logits[0, ..., 0].numel())
    total = F.cross_entropy(logits.flatten(0, -2), labels, ignore_index=MISSING, reduction="sum")
    # Clamped: a batch without labels gives 0 and not NaN, as reduction="mean" would.
    return total / (labels != MISSING).sum().clamp(min=1)
