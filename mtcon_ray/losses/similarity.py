"""Relations by degree: label sets that overlap, numbers that lie near each other.

A pair's weight depends on two labels alone, so that G distinct labels give [G, G] weights, and
sums over each label's rows give the partners' sums: no mask over the N rows is built.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING, UNKNOWN_BIT
from mtcon_ray.losses.relations import Partners, among_known

# METHODS 10.1: a pair exactly at the threshold belongs to it, whatever rounding does.
TOLERANCE = 1e-6
# A kernel's weight below this makes no partner: numbers 3.03 bandwidths apart.
LEAST_WEIGHT = 0.01


class Groups(NamedTuple):
    """Items by label: the group of each, and who is a partner of whom with what weight.

    A group is its own partner with weight 1. weight_GG is 0 where is_partner_GG is False.
    """

    group_B: Tensor
    weight_GG: Tensor
    is_partner_GG: Tensor
    known_B: Tensor

    def partners(self, z_BVD: Tensor, missing: str) -> Partners:
        """Sums over the partners of every row; items that are not known are nobody's."""
        _, V, D = z_BVD.shape
        G = len(self.weight_GG)
        known_B = self.known_B.to(z_BVD.dtype)
        item_sum_BD = z_BVD.sum(dim=1) * known_B[:, None]
        group_sum_GD = item_sum_BD.new_zeros(G, D).index_add(0, self.group_B, item_sum_BD)
        size_G = known_B.new_zeros(G).index_add(0, self.group_B, known_B) * V
        # An item's own weight is 1, so that a row leaves its own sum as in EqualLabel.
        partner_sum_BVD = (self.weight_GG @ group_sum_GD)[self.group_B][:, None] - z_BVD
        weight_B = (self.weight_GG @ size_G)[self.group_B] - 1
        count_B = (self.is_partner_GG.to(z_BVD.dtype) @ size_G)[self.group_B] - 1
        num_groups = (size_G > 0).sum().to(z_BVD.dtype)
        return among_known(
            z_BVD, partner_sum_BVD, weight_B, count_B, num_groups, self.known_B, missing
        )


class LabelSets:
    """Partners overlap by `threshold` at least; the weight is the overlap: MultiSupCon.

    The overlap is Jaccard's, of counts the weighted one: sum of minima over sum of maxima
    (METHODS 10.1). sets_BL holds 0 and 1, or counts with counts=True; what is unknown is 255 in
    uint8, -1 in any other type. A pair is compared on the labels known in both: two sets that
    are empty there are equal, without a common known label a pair is none. A row without any
    known label is nobody's partner; with missing="skip" it has none either, with "self_only" it
    keeps its own other views. similarity_weights=False gives each partner the weight 1.
    """

    def __init__(
        self,
        sets_BL: Tensor,
        *,
        threshold: float,
        counts: bool = False,
        similarity_weights: bool = True,
        missing: str = "skip",
    ) -> None:
        assert missing in ("skip", "self_only"), missing
        assert 0 <= threshold <= 1, threshold
        self.sets_BL = sets_BL
        self.threshold = threshold
        self.counts = counts
        self.similarity_weights = similarity_weights
        self.missing = missing

    def partners(self, z_BVD: Tensor) -> Partners:
        sets_GL, group_B = torch.unique(self.sets_BL, dim=0, return_inverse=True)
        is_known_GL = is_known(sets_GL)
        y_GL = torch.where(is_known_GL, sets_GL, 0).to(z_BVD.dtype)
        known_GL = is_known_GL.to(z_BVD.dtype)
        inter_GG, union_GG = (_overlap_of_counts if self.counts else _overlap)(y_GL, known_GL)
        similarity_GG = torch.where(union_GG > 0, inter_GG / union_GG.where(union_GG > 0, 1), 1.0)
        # Both are whole numbers and exact; times the threshold they need float64.
        is_partner_GG = inter_GG.double() >= self.threshold * union_GG.double() - TOLERANCE
        is_partner_GG &= known_GL @ known_GL.T > 0
        weight_GG = similarity_GG if self.similarity_weights else torch.ones_like(similarity_GG)
        groups = Groups(
            group_B, weight_GG * is_partner_GG, is_partner_GG, is_known_GL.any(dim=1)[group_B]
        )
        return groups.partners(z_BVD, self.missing)


class Near:
    """Partners have numbers near the anchor's; the weight falls with their distance.

    The weight of a pair at distance d is exp(-d^2 / (2 h^2)) with the bandwidth h in units of
    the numbers, which a training standardises; below LEAST_WEIGHT a pair is none. numbers_B is
    NaN where unknown; missing as in LabelSets.
    """

    def __init__(self, numbers_B: Tensor, *, bandwidth: float, missing: str = "skip") -> None:
        assert missing in ("skip", "self_only"), missing
        assert bandwidth > 0, bandwidth
        self.numbers_B = numbers_B
        self.bandwidth = bandwidth
        self.missing = missing

    def partners(self, z_BVD: Tensor) -> Partners:
        known_B = ~self.numbers_B.isnan()
        numbers_G, group_B = torch.unique(
            self.numbers_B.nan_to_num().to(z_BVD.dtype), return_inverse=True
        )
        distance_GG = (numbers_G[:, None] - numbers_G) / self.bandwidth
        weight_GG = torch.exp(-0.5 * distance_GG.square())
        is_partner_GG = weight_GG >= LEAST_WEIGHT
        groups = Groups(group_B, weight_GG * is_partner_GG, is_partner_GG, known_B)
        return groups.partners(z_BVD, self.missing)


def is_known(sets_BL: Tensor) -> Tensor:
    """Which labels of a set are known, bool in the shape of `sets_BL`."""
    return sets_BL != (UNKNOWN_BIT if sets_BL.dtype == torch.uint8 else MISSING)


def _overlap(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of intersection and union of sets of 0 and 1, over the labels known in both."""
    inter_GG = y_GL @ y_GL.T
    size_GG = y_GL @ known_GL.T
    return inter_GG, size_GG + size_GG.T - inter_GG


def _overlap_of_counts(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of minima and of maxima over the labels known in both; takes G x G x L floats."""
    both_GGL = known_GL[:, None] * known_GL
    minima_GG = (torch.minimum(y_GL[:, None], y_GL) * both_GGL).sum(dim=2)
    maxima_GG = (torch.maximum(y_GL[:, None], y_GL) * both_GGL).sum(dim=2)
    return minima_GG, maxima_GG
