"""Soft positives: weights by the overlap of label sets or by the distance of numbers.

A pair's weight depends on its two labels alone. G distinct labels therefore have [G, G] weights,
and the weighted sums of positives follow from each label's sum of rows: no [N, N] mask is built.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING, UNKNOWN_BIT
from mtcon_ray.losses.positives import Degrees, Pairs, Relation, pairs_of_items
from mtcon_ray.losses.tiled_logsumexp import is_sync_free

# A pair exactly at the threshold is a positive, in spite of rounding.
TOLERANCE = 1e-6
# Below this many elements (B^2 L), removing duplicate labels costs more than it saves, so each item
# is a group of its own. On a GPU `unique` would be a device synchronisation, so the limit applies
# to B^2 alone. Also the number of elements for which pairs are compared at a time.
MOST_ALONE = 2**24
# A pair whose kernel weight is below this is no positive: numbers 3.03 bandwidths apart.
LEAST_WEIGHT = 0.01
# Sums of weights below this are rounding of 0, because a sum above 0 has a weight of a positive.
LEAST_SUM = 1e-6


class Groups(NamedTuple):
    """Items grouped by label, and the weights between groups.

    group_B is each item's group. Rows of one group are positives of each other with weight 1.
    weight_GG is 0 where is_positive_GG is False. Several groups may have the same label.
    """

    group_B: Tensor
    weight_GG: Tensor
    is_positive_GG: Tensor
    is_known_B: Tensor

    def totals(self, value_GG: Tensor, z_HBVD: Tensor) -> Tensor:
        """Returns each item's sum of the values over the rows of all known items, [B]."""
        known_B = self.is_known_B.to(z_HBVD.dtype)
        size_G = known_B.new_zeros(len(value_GG)).index_add_(0, self.group_B, known_B)
        return (value_GG.to(z_HBVD.dtype) @ size_G)[self.group_B] * z_HBVD.shape[2]


class ByDegree(Relation):
    """A relation with soft positives. Its groups are computed once, at the first call."""

    def __init__(self, missing: str) -> None:
        super().__init__(missing)
        self._found: Groups | None = None

    @abstractmethod
    def groups(self, dtype: torch.dtype) -> Groups:
        """Returns the items' groups, with weights of this dtype."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        found, (H, _, V, _) = self._groups(z_HBVD), z_HBVD.shape
        alone = V - 1 if self.missing == "self_only" else 0
        weight_HB, count_HB = (
            # Minus 1, because the group's rows include the anchor, with weight 1.
            torch.where(found.is_known_B, found.totals(x_GG, z_HBVD) - 1, alone).expand(H, -1)
            for x_GG in (found.weight_GG, found.is_positive_GG)
        )
        return Degrees(weight_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        """Returns every row's weighted sum of positives; for unknown items of their other views."""
        found, (H, _, _, D) = self._groups(x_HBVD), x_HBVD.shape
        item_sum_HBD = x_HBVD.sum(dim=2)
        is_known_B1 = found.is_known_B[:, None]
        empty_HGD = x_HBVD.new_zeros(H, len(found.weight_GG), D)
        group_sum_HGD = empty_HGD.index_add_(1, found.group_B, item_sum_HBD * is_known_B1)
        positive_sum_HBD = (found.weight_GG @ group_sum_HGD)[:, found.group_B]
        return torch.where(is_known_B1, positive_sum_HBD, item_sum_HBD)[:, :, None] - x_HBVD

    def pairs(self, z_BVD: Tensor) -> Pairs:
        found, degrees = self._groups(z_BVD), self.degrees(z_BVD[None])
        known_B, weight_BB = (
            found.is_known_B,
            found.weight_GG[found.group_B[:, None], found.group_B],
        )
        # An unknown item has weight 1 with itself alone.
        itself_BB = torch.eye(len(known_B), dtype=weight_BB.dtype, device=weight_BB.device)
        weight_BB = torch.where(known_B[:, None] & known_B, weight_BB, itself_BB)
        return pairs_of_items(weight_BB[None], degrees, z_BVD.shape[1])

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        """Returns log W - (sum of w log w) / W of each item's positives, [H, B]; W sums the w."""
        found, (weight_HB, count_HB) = self._groups(z_HBVD), self.degrees(z_HBVD)
        # The anchor itself, with weight 1, contributes 1 log 1 = 0.
        log_GG = torch.special.xlogy(found.weight_GG, found.weight_GG)
        log_HB = found.totals(log_GG, z_HBVD).where(found.is_known_B & (count_HB > 0), 0.0)
        sum_HB = weight_HB.where(count_HB > 0, 1.0).clamp(min=LEAST_SUM)
        return sum_HB.log() - log_HB / sum_HB

    def _groups(self, x_HBVD: Tensor) -> Groups:
        if self._found is None:
            self._found = self.groups(x_HBVD.dtype)
        return self._found


class LabelSets(ByDegree):
    """Positives have label sets that overlap by at least `threshold`; the weight is the overlap.

    That is MultiSupCon. The overlap is the Jaccard index; for counts it is the weighted Jaccard
    index, the sum of minima over the sum of maxima. sets_BL holds 0 and 1, or counts with
    counts=True. An unknown entry is 255 in uint8, -1 in any other dtype. A pair is compared on the
    labels that are known in both. If both sets are empty there, the overlap is 1; if there is no
    such label, the pair is not positive. A row without any known label is no other item's positive.
    With missing="skip" it has no positive either, with "self_only" its positives are its own other
    views. similarity_weights=False gives each positive the weight 1.
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
        super().__init__(missing)
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.sets_BL = sets_BL
        self.threshold = threshold
        self.counts = counts
        self.similarity_weights = similarity_weights

    def groups(self, dtype: torch.dtype) -> Groups:
        sets_GL, group_B = grouped(self.sets_BL)
        is_known_GL = is_known(sets_GL)
        y_GL = torch.where(is_known_GL, sets_GL, 0).to(dtype)
        known_GL = is_known_GL.to(dtype)
        inter_GG, union_GG = (_overlap_of_counts if self.counts else _overlap)(y_GL, known_GL)
        similarity_GG = torch.where(union_GG > 0, inter_GG / union_GG.where(union_GG > 0, 1), 1.0)
        # inter and union are exact whole numbers; their products with the threshold need float64.
        is_positive_GG = inter_GG.double() >= self.threshold * union_GG.double() - TOLERANCE
        is_positive_GG &= known_GL @ known_GL.T > 0
        weight_GG = similarity_GG if self.similarity_weights else torch.ones_like(similarity_GG)
        is_known_B = is_known_GL.any(dim=1)[group_B]
        return Groups(group_B, weight_GG * is_positive_GG, is_positive_GG, is_known_B)


class Near(ByDegree):
    """Positives have numbers near the anchor's; the weight is a Gaussian kernel of the distance.

    The weight at distance d is exp(-d^2 / (2 h^2)) with the bandwidth h in the unit of the numbers,
    which training standardises. Below LEAST_WEIGHT a pair is not positive. numbers_B is NaN where
    unknown; `missing` as in LabelSets.
    """

    def __init__(self, numbers_B: Tensor, *, bandwidth: float, missing: str = "skip") -> None:
        super().__init__(missing)
        self.numbers_B = numbers_B
        self.bandwidth = bandwidth

    def groups(self, dtype: torch.dtype) -> Groups:
        known_B = ~self.numbers_B.isnan()
        numbers_G, group_B = grouped(self.numbers_B.nan_to_num().to(dtype))
        distance_GG = (numbers_G[:, None] - numbers_G) / self.bandwidth
        weight_GG = torch.exp(-0.5 * distance_GG.square())
        is_positive_GG = weight_GG >= LEAST_WEIGHT
        return Groups(group_B, weight_GG * is_positive_GG, is_positive_GG, known_B)


def grouped(label_B: Tensor) -> tuple[Tensor, Tensor]:
    """Returns groups' labels [G] or [G, L] and each item's group: distinct labels, or all items.

    MOST_ALONE says which.
    """
    num_elements = label_B.numel() if is_sync_free(label_B) else len(label_B)
    if len(label_B) * num_elements <= MOST_ALONE:
        return label_B, torch.arange(len(label_B), device=label_B.device)
    label_G, group_B = torch.unique(label_B, dim=0, return_inverse=True)
    return label_G, group_B


def is_known(sets_BL: Tensor) -> Tensor:
    """Returns a mask of the known entries, bool in the shape of `sets_BL`."""
    return sets_BL != (UNKNOWN_BIT if sets_BL.dtype == torch.uint8 else MISSING)


def _overlap(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Returns sizes of intersections and unions of sets of 0 and 1, over labels known in both."""
    inter_GG = y_GL @ y_GL.T
    size_GG = y_GL @ known_GL.T
    return inter_GG, size_GG + size_GG.T - inter_GG


def _overlap_of_counts(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Returns sums of minima and sums of maxima over the labels known in both."""
    minima_GG = y_GL.new_zeros(len(y_GL), len(y_GL))
    maxima_GG = minima_GG.clone()
    # As many labels at a time as have MOST_ALONE elements in all pairs of groups.
    num_labels = max(1, MOST_ALONE // len(y_GL) ** 2)
    for y_GK, known_GK in zip(
        y_GL.split(num_labels, 1), known_GL.split(num_labels, 1), strict=True
    ):
        both_GGK = known_GK[:, None] * known_GK
        minima_GG += (torch.minimum(y_GK[:, None], y_GK) * both_GGK).sum(dim=2)
        maxima_GG += (torch.maximum(y_GK[:, None], y_GK) * both_GGK).sum(dim=2)
    return minima_GG, maxima_GG
