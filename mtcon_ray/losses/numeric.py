"""Precision of losses, checks of their rows, cross-entropy, and mean cosines of pairs.

exp(1 / temperature) overflows float16 below a temperature of 0.09, so losses are computed in
float32 at least.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.positives import Relation
from mtcon_ray.spec.problem import MISSING

AnyLoss = TypeVar("AnyLoss", bound=Callable[..., Any])


def in_full_precision(loss: AnyLoss) -> AnyLoss:
    """Decorates a loss: autocast is off, and half-precision arguments become float32.

    The first positional argument must be a tensor. Autocast is turned off for its device.
    """

    @wraps(loss)
    def wrapped(z: Tensor, *args: Any, **options: Any) -> Any:
        with torch.autocast(z.device.type, enabled=False):
            named = {name: at_least_float32(x) for name, x in options.items()}
            return loss(*map(at_least_float32, (z, *args)), **named)

    return cast(AnyLoss, wrapped)


def at_least_float32(x: Any) -> Any:
    """Returns a tensor of half precision in float32, and anything else as it is."""
    return x.float() if isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16) else x


def check_rows(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor with finite entries.

    Causes a device synchronisation.
    """
    check_floating(z, name)
    if bad := int((~torch.isfinite(z)).sum()):
        raise ValueError(f"{name} must be finite, got {bad} of {z.numel()} entries nan or inf")


def check_floating(z: Tensor, name: str = "z") -> None:
    """Raises ValueError unless z is a floating-point tensor."""
    if not z.is_floating_point():
        raise ValueError(f"{name} must be of a floating-point dtype, got {z.dtype}")


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


class Compared(NamedTuple):
    """Rows [B, V, D] of a head, and the rows compared with them in a loss, both detached.

    They are the same rows, or queries and their keys. Both mean cosines are near 1 if the
    embeddings collapse.
    """

    z_BVD: Tensor
    other_BVD: Tensor
    relation: Relation

    @torch.no_grad()
    def cosines(self) -> tuple[Tensor, Tensor]:
        """Returns the weighted mean cosine of positives and the mean cosine of different items.

        Both are scalars, and not finite if the batch has no such pair.
        Sums of rows give the sums of products, so memory is linear in the batch.
        """
        rows = self.z_BVD, self.other_BVD
        z_BVD, other_BVD = (F.normalize(at_least_float32(x_BVD), dim=2) for x_BVD in rows)
        B, V, _ = z_BVD.shape
        degrees = self.relation.degrees(z_BVD[None])
        weight_B = degrees.weight_HB[0].where(degrees.count_HB[0] > 0, 0.0)
        sum_BVD = self.relation.sums(other_BVD[None])[0]
        # `sums` is undefined for rows without positives.
        sum_B = (z_BVD * sum_BVD).sum(dim=(1, 2)).where(weight_B > 0, 0.0)
        item_BD, other_BD = z_BVD.sum(dim=1), other_BVD.sum(dim=1)
        of_all = item_BD.sum(dim=0) @ other_BD.sum(dim=0)
        of_same_item = (item_BD * other_BD).sum()
        num_random = V * V * B * (B - 1)
        return sum_B.sum() / (weight_B.sum() * V), (of_all - of_same_item) / num_random
