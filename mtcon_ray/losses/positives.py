"""Positives by labels or the image alone: which rows attract an anchor, how strongly.

A relation over the N = B * V rows of a batch is a symmetric [N, N] matrix of weights, above 0 for
positive pairs. In a large batch it is never materialised. A relation then returns only three
results per anchor, in H spaces at once: the weighted sum of its positives' rows, their number and
the sum of their weights. Because it is symmetric, the gradient needs the same sums. In a small
batch the matrix of the B items is faster, and `pairs` returns it. Soft positives are weighted by
the overlap of label sets. Their weights are the matrix of the items.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

# A pair exactly at the threshold is a positive, in spite of rounding.
TOLERANCE = 1e-6


class Degrees(NamedTuple):
    """Each anchor's positives without their embeddings, float [H, B], equal for an item's views."""

    weight_HB: Tensor  # sum of the positives' weights
    count_HB: Tensor  # number of positives

    def share_HB(self) -> Tensor:
        """Returns 1 / count, and 0 for anchors without a positive."""
        return self.count_HB.clamp(min=1).reciprocal_().mul_(self.count_HB > 0)

    def num_valid_H(self, num_views: int) -> Tensor:
        """Returns the number of anchors with a positive, [H], in the dtype of the count."""
        return (self.count_HB > 0).sum(dim=1, dtype=self.count_HB.dtype) * num_views


class Relation(ABC):
    """The positives among the B items of a batch, each with V views.

    An item without label has no positives.
    """

    @abstractmethod
    def degrees(self, z_HBVD: Tensor) -> Degrees:
        """Returns number and weight of every anchor's positives. z gives shape and dtype."""

    @abstractmethod
    def sums(self, x_HBVD: Tensor) -> Tensor:
        """Returns for every row the weighted sum of its positives' rows, in the shape of x.

        The result is undefined for rows without a positive.
        """

    def pairs(self, z_BVD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns a small batch's coefficients pull_HNN, push_HN and num_valid_H.

        H is 1 if all spaces have the same. Rows are ordered item by item, N = B * V. The sum of all
        anchors' losses is

            sum over i of push_i logsumexp_i - sum over i and j of pull_ij z_i.z_j / temperature.

        pull is weight / number of positives, averaged over (i, j) and (j, i), and 0 on the
        diagonal. push is the sum of the positives' weights / their number, or 0 for an anchor
        without a positive. num_valid is the number of anchors with a positive. `z_BVD` gives shape,
        dtype and device.
        """
        (B, V, _), degrees = z_BVD.shape, self.degrees(z_BVD[None])
        unit_1BB = torch.eye(B, dtype=z_BVD.dtype, device=z_BVD.device)[None]
        # The sums of unit vectors are the weights between items. It is 1 between views of an item.
        weight_HBB = self.sums(unit_1BB[:, :, None])[:, :, 0] + unit_1BB
        share_HB = degrees.share_HB()
        pull_HBB = (share_HB[:, :, None] + share_HB[:, None]).mul_(weight_HBB).div_(2)
        pull_HNN = pull_HBB.repeat_interleave(V, dim=1).repeat_interleave(V, dim=2)
        pull_HNN.diagonal(dim1=1, dim2=2).zero_()
        push_HN = (share_HB * degrees.weight_HB).repeat_interleave(V, dim=1)
        return pull_HNN, push_HN, degrees.num_valid_H(V)


class OwnView(Relation):
    """Positives are the other views of the anchor's image: SimCLR (arXiv:2002.05709)."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        H, B, V, _ = z_HBVD.shape
        count_HB = z_HBVD.new_full((H, B), V - 1)
        return Degrees(count_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        return x_HBVD.sum(dim=2, keepdim=True) - x_HBVD


class EqualLabel(Relation):
    """Positives are all other rows with the anchor's label: SupCon (arXiv:2004.11362).

    labels_HB is int64, MISSING where unknown, or [B] for a single space. A row without a label has
    no positive and is none.
    """

    def __init__(self, labels_HB: Tensor) -> None:
        self.labels_HB = labels_HB if labels_HB.ndim == 2 else labels_HB.unsqueeze(0)

    @cached_property
    def _group_HB(self) -> Tensor:
        """The label as an index into H * B slots. A single index_add_ then serves all spaces.

        It is the place of the first equal label among the sorted labels of its space, plus B times
        the space.
        """
        labels_HB = self.labels_HB.contiguous()  # searchsorted warns of others
        H, B = labels_HB.shape
        # Not torch.unique: its output's size depends on values, which is a device synchronisation.
        place_HB = torch.searchsorted(labels_HB.sort(dim=1).values, labels_HB)
        return place_HB + B * torch.arange(H, device=place_HB.device)[:, None]

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        known_F = (self.labels_HB != MISSING).to(z_HBVD.dtype).flatten()
        size_F = torch.zeros_like(known_F).index_add_(0, self._group_HB.flatten(), known_F)
        # Not below 0, for items without label, which no slot counts.
        count_HB = size_F[self._group_HB].mul_(z_HBVD.shape[2]).sub_(1).clamp_(min=0)
        return Degrees(count_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        H, B, _, D = x_HBVD.shape
        item_sum_FD = x_HBVD.sum(dim=2).flatten(0, 1)
        group_F = self._group_HB.flatten()
        class_sum_FD = torch.zeros_like(item_sum_FD).index_add_(0, group_F, item_sum_FD)
        return class_sum_FD[group_F].view(H, B, 1, D) - x_HBVD

    def pairs(self, z_BVD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (H, B), V = self.labels_HB.shape, z_BVD.shape[1]
        label_HN = self.labels_HB[:, :, None].expand(H, B, V).reshape(H, B * V)
        pull_HNN = (label_HN[:, :, None] == label_HN[:, None]).to(z_BVD.dtype)
        pull_HNN.diagonal(dim1=1, dim2=2).zero_()
        count_HN = pull_HNN.sum(dim=2)
        count_HN.view(H, B, V).mul_((self.labels_HB != MISSING)[:, :, None])
        push_HN = count_HN.clamp(max=1)
        # Both sides of a pair have equally many positives, so no average is needed.
        pull_HNN.mul_((push_HN / count_HN.clamp(min=1))[:, :, None])
        return pull_HNN, push_HN, push_HN.sum(dim=1)


class LabelSets(Relation):
    """Positives have label sets that overlap by at least `threshold`. The weight is the overlap.

    This is MultiSupCon. The overlap is the Jaccard index. sets_BL holds 0 and 1. An unknown entry
    is 255 in uint8, -1 in any other dtype. A pair is compared on the labels known in both. If both
    sets are empty there, the overlap is 1. Without a label known in both, the pair is not positive.
    A row without any known label has no positive and is none.
    """

    # Weights between items, and where they are positive: [B, B]. Computed once, at the first call.
    _found: tuple[Tensor, Tensor] | None = None

    def __init__(self, sets_BL: Tensor, *, threshold: float) -> None:
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must lie in [0, 1], got {threshold}")
        self.sets_BL, self.threshold = sets_BL, threshold

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        H, _, V, _ = z_HBVD.shape
        weight_HB, count_HB = (
            # Minus 1, because the rows include the anchor, with weight 1. Not below 0, for items
            # without a known label.
            x_BB.sum(dim=1, dtype=z_HBVD.dtype).mul_(V).sub_(1).clamp_(min=0).expand(H, -1)
            for x_BB in self._weights(z_HBVD.dtype)
        )
        return Degrees(weight_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        weight_BB, _ = self._weights(x_HBVD.dtype)
        return (weight_BB @ x_HBVD.sum(dim=2))[:, :, None] - x_HBVD

    def _weights(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Returns the weights, 0 for other pairs than positives, and a mask of the positives."""
        if self._found is None:
            is_known_BL = is_known(self.sets_BL)
            y_BL = torch.where(is_known_BL, self.sets_BL, 0).to(dtype)
            known_BL = is_known_BL.to(dtype)
            inter_BB = y_BL @ y_BL.T
            size_BB = y_BL @ known_BL.T
            union_BB = size_BB + size_BB.T - inter_BB
            overlap_BB = torch.where(union_BB > 0, inter_BB / union_BB.where(union_BB > 0, 1), 1.0)
            # inter and union are exact whole numbers. Their products with the threshold need
            # float64.
            least_BB = self.threshold * union_BB.double() - TOLERANCE
            is_positive_BB = (inter_BB.double() >= least_BB) & (known_BL @ known_BL.T > 0)
            self._found = overlap_BB * is_positive_BB, is_positive_BB
        return self._found


def is_known(sets_BL: Tensor) -> Tensor:
    """Returns a mask of the known entries, bool in the shape of `sets_BL`."""
    return sets_BL != (UNKNOWN_BIT if sets_BL.dtype == torch.uint8 else MISSING)
