"""Soft positives: weights by the overlap of label sets or by the distance of numbers.

The weights of the pairs of a batch's B items are a [B, B] matrix. No matrix of its rows is built.
"""

from abc import abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.losses.positives import Degrees, Pairs, Relation, pairs_of_items
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

# A pair exactly at the threshold is a positive, in spite of rounding.
TOLERANCE = 1e-6
# A pair with a kernel weight below this is not a positive: numbers 3.03 bandwidths apart.
LEAST_WEIGHT = 0.01
# Sums of weights below this are rounding of 0, because a sum above 0 has a weight of a positive.
LEAST_SUM = 1e-6


class Weights(NamedTuple):
    """Weights between items, 0 if is_positive_BB is False. An item has weight 1 with itself."""

    weight_BB: Tensor
    is_positive_BB: Tensor
    is_known_B: Tensor

    def totals(self, value_BB: Tensor, z_HBVD: Tensor) -> Tensor:
        """Returns each item's sum of the values over the rows of all known items, [B]."""
        dtype = z_HBVD.dtype
        return value_BB.to(dtype) @ self.is_known_B.to(dtype) * z_HBVD.shape[2]


class ByDegree(Relation):
    """A relation with soft positives. Its weights are computed once, at the first call."""

    _found: Weights | None = None

    @abstractmethod
    def weights(self, dtype: torch.dtype) -> Weights:
        """Returns the weights, of this dtype. Weights of unknown items are not used."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        found, H = self._weights(z_HBVD), len(z_HBVD)
        weight_HB, count_HB = (
            # Minus 1, because the rows include the anchor, with weight 1.
            torch.where(found.is_known_B, found.totals(x_BB, z_HBVD) - 1, 0).expand(H, -1)
            for x_BB in (found.weight_BB, found.is_positive_BB)
        )
        return Degrees(weight_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        """Returns every row's weighted sum of positives."""
        return (self._weights(x_HBVD).weight_BB @ x_HBVD.sum(dim=2))[:, :, None] - x_HBVD

    def pairs(self, z_BVD: Tensor) -> Pairs:
        weight_1BB = self._weights(z_BVD).weight_BB[None]
        return pairs_of_items(weight_1BB, self.degrees(z_BVD[None]), z_BVD.shape[1])

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        """Returns log W - (sum of w log w) / W of each item's positives, [H, B], W the sum of w."""
        found, (weight_HB, count_HB) = self._weights(z_HBVD), self.degrees(z_HBVD)
        # The anchor itself, with weight 1, contributes 1 log 1 = 0.
        log_BB = torch.special.xlogy(found.weight_BB, found.weight_BB)
        log_HB = found.totals(log_BB, z_HBVD).where(found.is_known_B & (count_HB > 0), 0.0)
        sum_HB = weight_HB.where(count_HB > 0, 1.0).clamp(min=LEAST_SUM)
        return sum_HB.log() - log_HB / sum_HB

    def _weights(self, x_HBVD: Tensor) -> Weights:
        if self._found is None:
            found = self.weights(x_HBVD.dtype)
            both_BB = found.is_known_B[:, None] & found.is_known_B
            self._found = found._replace(weight_BB=found.weight_BB.where(both_BB, 0.0))
        return self._found


class LabelSets(ByDegree):
    """Positives have label sets that overlap by at least `threshold`. The weight is the overlap.

    This is MultiSupCon. The overlap is the Jaccard index. sets_BL holds 0 and 1. An unknown entry
    is 255 in uint8, -1 in any other dtype. A pair is compared on the labels known in both. If both
    sets are empty there, the overlap is 1. Without a label known in both, the pair is not positive.
    A row without any known label has no positive and is none.
    """

    def __init__(self, sets_BL: Tensor, *, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.sets_BL = sets_BL
        self.threshold = threshold

    def weights(self, dtype: torch.dtype) -> Weights:
        is_known_BL = is_known(self.sets_BL)
        y_BL = torch.where(is_known_BL, self.sets_BL, 0).to(dtype)
        known_BL = is_known_BL.to(dtype)
        inter_BB = y_BL @ y_BL.T
        size_BB = y_BL @ known_BL.T
        union_BB = size_BB + size_BB.T - inter_BB
        similarity_BB = torch.where(union_BB > 0, inter_BB / union_BB.where(union_BB > 0, 1), 1.0)
        # inter and union are exact whole numbers. Their products with the threshold need float64.
        is_positive_BB = inter_BB.double() >= self.threshold * union_BB.double() - TOLERANCE
        is_positive_BB &= known_BL @ known_BL.T > 0
        return Weights(similarity_BB * is_positive_BB, is_positive_BB, is_known_BL.any(dim=1))


class Near(ByDegree):
    """Positives have numbers near the anchor's. The weight is a Gaussian kernel of the distance.

    The weight at distance d is exp(-d^2 / (2 h^2)) with the bandwidth h in the unit of the numbers,
    which training standardises. Below LEAST_WEIGHT a pair is not positive. numbers_B is NaN where
    unknown.
    """

    def __init__(self, numbers_B: Tensor, *, bandwidth: float) -> None:
        self.numbers_B = numbers_B
        self.bandwidth = bandwidth

    def weights(self, dtype: torch.dtype) -> Weights:
        numbers_B = self.numbers_B.nan_to_num().to(dtype)
        distance_BB = (numbers_B[:, None] - numbers_B) / self.bandwidth
        weight_BB = torch.exp(-0.5 * distance_BB.square())
        is_positive_BB = weight_BB >= LEAST_WEIGHT
        return Weights(weight_BB * is_positive_BB, is_positive_BB, ~self.numbers_B.isnan())


def is_known(sets_BL: Tensor) -> Tensor:
    """Returns a mask of the known entries, bool in the shape of `sets_BL`."""
    return sets_BL != (UNKNOWN_BIT if sets_BL.dtype == torch.uint8 else MISSING)
