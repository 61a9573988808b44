"""Relations by degree: label sets that overlap, numbers that lie near each other.

A pair's weight depends on two labels alone, so that G distinct labels give [G, G] weights, and
sums over each label's rows give the partners' sums: no mask over the N rows is built.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING, UNKNOWN_BIT
from mtcon_ray.losses.log_sum import may_look
from mtcon_ray.losses.relations import Degrees, Pairs, pairs_of_items

# METHODS 10.1: a pair exactly at the threshold belongs to it, whatever rounding does.
TOLERANCE = 1e-6
# Up to so many numbers in all pairs of items each item is a group of its own: finding equal ones
# takes as long there. Off the CPU, where one would wait to be told how many they are, up to so many
# pairs. As many numbers of pairs are compared at a time.
MOST_ALONE = 2**24
# A kernel's weight below this makes no partner: numbers 3.03 bandwidths apart.
LEAST_WEIGHT = 0.01
# Sums of weights below this are rounding of 0: every weight above 0 is that of a partner.
LEAST_SUM = 1e-6


class Groups(NamedTuple):
    """Items by label: the group of each, and who is a partner of whom with what weight.

    A group is its own partner with weight 1. weight_GG is 0 where is_partner_GG is False. Groups
    may have equal labels where the items are few.
    """

    group_B: Tensor
    weight_GG: Tensor
    is_partner_GG: Tensor
    is_known_B: Tensor

    def degrees(self, z_HBVD: Tensor, missing: str) -> Degrees:
        """Of items in H spaces that all have this relation."""
        H, _, V, _ = z_HBVD.shape
        size_G = self.sizes(z_HBVD)
        alone = V - 1 if missing == "self_only" else 0

        def of_items(amount_G: Tensor) -> Tensor:
            # An item's own weight is 1: a row is not its own partner.
            amount_B = torch.where(self.is_known_B, amount_G[self.group_B] - 1, alone)
            return amount_B.expand(H, -1)

        count_GG = self.is_partner_GG.to(z_HBVD.dtype)
        return Degrees(of_items(self.weight_GG @ size_G), of_items(count_GG @ size_G))

    def entropies(self, z_HBVD: Tensor, missing: str) -> Tensor:
        """log W - (sum of w log w) / W of each item's partners in H spaces, [H, B]."""
        weight_HB, count_HB = self.degrees(z_HBVD, missing)
        # A row's weight of 1 for itself adds nothing to this sum.
        log_GG = torch.special.xlogy(self.weight_GG, self.weight_GG)
        log_B = (log_GG @ self.sizes(z_HBVD))[self.group_B].where(self.is_known_B, 0.0)
        sum_HB = weight_HB.where(count_HB > 0, 1.0).clamp(min=LEAST_SUM)
        entropy_HB: Tensor = sum_HB.log() - log_B.where(count_HB > 0, 0.0) / sum_HB
        return entropy_HB

    def sizes(self, z_HBVD: Tensor) -> Tensor:
        """Rows of known items in each group, [G]."""
        known_B = self.is_known_B.to(z_HBVD.dtype)
        empty_G = known_B.new_zeros(len(self.weight_GG))
        return empty_G.index_add_(0, self.group_B, known_B) * z_HBVD.shape[2]

    def weights(self) -> Tensor:
        """[1, B, B]; of unknown items 1 with themselves."""
        known_B = self.is_known_B
        weight_BB = self.weight_GG[self.group_B[:, None], self.group_B]
        itself_BB = torch.eye(len(known_B), dtype=weight_BB.dtype, device=weight_BB.device)
        return torch.where(known_B[:, None] & known_B, weight_BB, itself_BB)[None]

    def sums(self, x_HBVD: Tensor) -> Tensor:
        """For every row the weighted sum of its partners; of unknown items their other views."""
        H, _, _, D = x_HBVD.shape
        item_sum_HBD = x_HBVD.sum(dim=2)
        known_sum_HBD = item_sum_HBD * self.is_known_B.to(x_HBVD.dtype)[:, None]
        empty_HGD = x_HBVD.new_zeros(H, len(self.weight_GG), D)
        group_sum_HGD = empty_HGD.index_add_(1, self.group_B, known_sum_HBD)
        partner_sum_HBD = (self.weight_GG @ group_sum_HGD)[:, self.group_B]
        sum_HBD = torch.where(self.is_known_B[:, None], partner_sum_HBD, item_sum_HBD)
        return sum_HBD[:, :, None] - x_HBVD


class ByDegree(ABC):
    """A relation whose groups are found once, when the dtype of the rows is known."""

    def __init__(self, missing: str) -> None:
        assert missing in ("skip", "self_only"), missing
        self.missing = missing
        self._found: Groups | None = None

    @abstractmethod
    def groups(self, dtype: torch.dtype) -> Groups:
        """The items' groups, with weights of this dtype."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        return self._groups(z_HBVD).degrees(z_HBVD, self.missing)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        return self._groups(x_HBVD).sums(x_HBVD)

    def pairs(self, z_BVD: Tensor) -> Pairs:
        weight_1BB = self._groups(z_BVD).weights()
        return pairs_of_items(weight_1BB, self.degrees(z_BVD[None]), z_BVD.shape[1])

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        # Partners overlap: those of one row need not be each other's.
        return z_HBVD.new_full((len(z_HBVD),), 2)

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        return self._groups(z_HBVD).entropies(z_HBVD, self.missing)

    def _groups(self, x_HBVD: Tensor) -> Groups:
        if self._found is None:
            self._found = self.groups(x_HBVD.dtype)
        return self._found


class LabelSets(ByDegree):
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
        super().__init__(missing)
        assert 0 <= threshold <= 1, threshold
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
        # Both are whole numbers and exact; times the threshold they need float64.
        is_partner_GG = inter_GG.double() >= self.threshold * union_GG.double() - TOLERANCE
        is_partner_GG &= known_GL @ known_GL.T > 0
        weight_GG = similarity_GG if self.similarity_weights else torch.ones_like(similarity_GG)
        return Groups(
            group_B,
            weight_GG * is_partner_GG,
            is_partner_GG,
            is_known_GL.any(dim=1)[group_B],
        )


class Near(ByDegree):
    """Partners have numbers near the anchor's; the weight falls with their distance.

    The weight of a pair at distance d is exp(-d^2 / (2 h^2)) with the bandwidth h in units of
    the numbers, which a training standardises; below LEAST_WEIGHT a pair is none. numbers_B is
    NaN where unknown; missing as in LabelSets.
    """

    def __init__(self, numbers_B: Tensor, *, bandwidth: float, missing: str = "skip") -> None:
        super().__init__(missing)
        assert bandwidth > 0, bandwidth
        self.numbers_B = numbers_B
        self.bandwidth = bandwidth

    def groups(self, dtype: torch.dtype) -> Groups:
        known_B = ~self.numbers_B.isnan()
        numbers_G, group_B = grouped(self.numbers_B.nan_to_num().to(dtype))
        distance_GG = (numbers_G[:, None] - numbers_G) / self.bandwidth
        weight_GG = torch.exp(-0.5 * distance_GG.square())
        is_partner_GG = weight_GG >= LEAST_WEIGHT
        return Groups(group_B, weight_GG * is_partner_GG, is_partner_GG, known_B)


def grouped(label_B: Tensor) -> tuple[Tensor, Tensor]:
    """The labels [G] or [G, L] of groups, and the group of each item: distinct ones or all."""
    if is_alone(label_B):
        return label_B, torch.arange(len(label_B), device=label_B.device)
    label_G, group_B = torch.unique(label_B, dim=0, return_inverse=True)
    return label_G, group_B


def is_alone(label_B: Tensor) -> bool:
    """Whether items, or groups, are so few that equal ones stand apart."""
    numbers = label_B.numel() if may_look(label_B) else len(label_B)
    return len(label_B) * numbers <= MOST_ALONE


def by_labels(x_GL: Tensor) -> Iterator[Tensor]:
    """Columns of groups whose numbers, in all pairs of groups, are MOST_ALONE; one at least."""
    yield from x_GL.split(max(1, MOST_ALONE // len(x_GL) ** 2), dim=1)


def is_known(sets_BL: Tensor) -> Tensor:
    """Which labels of a set are known, bool in the shape of `sets_BL`."""
    return sets_BL != (UNKNOWN_BIT if sets_BL.dtype == torch.uint8 else MISSING)


def _overlap(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Sizes of intersection and union of sets of 0 and 1, over the labels known in both."""
    inter_GG = y_GL @ y_GL.T
    size_GG = y_GL @ known_GL.T
    return inter_GG, size_GG + size_GG.T - inter_GG


def _overlap_of_counts(y_GL: Tensor, known_GL: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of minima and of maxima over the labels known in both."""
    minima_GG = y_GL.new_zeros(len(y_GL), len(y_GL))
    maxima_GG = minima_GG.clone()
    for y_GK, known_GK in zip(by_labels(y_GL), by_labels(known_GL), strict=True):
        both_GGK = known_GK[:, None] * known_GK
        minima_GG += (torch.minimum(y_GK[:, None], y_GK) * both_GGK).sum(dim=2)
        maxima_GG += (torch.maximum(y_GK[:, None], y_GK) * both_GGK).sum(dim=2)
    return minima_GG, maxima_GG
