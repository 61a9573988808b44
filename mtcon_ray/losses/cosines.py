"""Mean cosines of positive and of random pairs; both are near 1 if the embeddings collapse."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.float32 import at_least_float32
from mtcon_ray.losses.positives import Relation


class Compared(NamedTuple):
    """Rows [B, V, D] of one head, and the rows that a loss compares them with, both detached.

    They are the same rows, or queries and their keys.
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
        z_BVD, other_BVD = (
            F.normalize(at_least_float32(x), dim=2) for x in (self.z_BVD, self.other_BVD)
        )
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
