"""Positives by labels that are equal or by the image alone: which rows attract an anchor.

A relation over the N = B * V rows of a batch is a symmetric [N, N] matrix of weights, above 0 for
positive pairs. In a large batch it is never materialised. A relation then returns only three
results per anchor, in H spaces at once: the weighted sum of its positives' rows, their number and
the sum of their weights. Because it is symmetric, the gradient needs the same sums. In a small
batch the matrix of the B items is faster, and `pairs` returns it.
"""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.spec.problem import MISSING


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


class Pairs(NamedTuple):
    """Coefficients of a small batch's loss. Rows are ordered item by item, N = B * V.

    The sum of all anchors' losses is

        sum over i of push_i logsumexp_i - sum over i and j of pull_ij z_i.z_j / temperature.
    """

    # Weight / number of positives, averaged over (i, j) and (j, i), and 0 on the diagonal.
    pull_HNN: Tensor
    # Sum of the positives' weights / their number, or 0 for an anchor without a positive.
    push_HN: Tensor
    num_valid_H: Tensor  # number of anchors with a positive


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

    @abstractmethod
    def pairs(self, z_BVD: Tensor) -> Pairs:
        """Returns the coefficients of a small batch. H is 1 if all spaces have the same.

        z_BVD are the rows of a space. Only their shape and dtype count.
        """

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        """Returns [H], the number of classes, or 2 if the positives form no classes, the default.

        Positives form classes if any two positives of an anchor are positives of each other. K
        classes are at most K / (K - 1) apart in cosine if all are equally far from each other. Two
        rows are at most 2 apart.
        """
        return z_HBVD.new_full((len(z_HBVD),), 2)

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        """Returns the entropy [H, B], nats, of the positives' normalised weights, 0 without any.

        By default for positives of equal weight.
        """
        return self.degrees(z_HBVD).count_HB.clamp(min=1).log()


class OwnView(Relation):
    """Positives are the other views of the anchor's image: SimCLR (arXiv:2002.05709)."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        H, B, V, _ = z_HBVD.shape
        count_HB = z_HBVD.new_full((H, B), V - 1)
        return Degrees(count_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        return x_HBVD.sum(dim=2, keepdim=True) - x_HBVD

    def pairs(self, z_BVD: Tensor) -> Pairs:
        B, V, _ = z_BVD.shape
        weight_1BB = torch.eye(B, dtype=z_BVD.dtype, device=z_BVD.device)[None]
        return pairs_of_items(weight_1BB, self.degrees(z_BVD[None]), V)

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        return z_HBVD.new_full((len(z_HBVD),), z_HBVD.shape[1])


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

        It is the rank of the label among the labels of its space, plus B times the space.
        """
        H, B = self.labels_HB.shape
        # Not torch.unique: its output's size depends on values, which is a device synchronisation.
        sorted_HB, order_HB = self.labels_HB.sort(dim=1)
        rank_HB = torch.zeros_like(sorted_HB)
        torch.cumsum(sorted_HB[:, 1:] != sorted_HB[:, :-1], dim=1, out=rank_HB[:, 1:])
        rank_HB = torch.empty_like(rank_HB).scatter_(1, order_HB, rank_HB)
        return rank_HB + B * torch.arange(H, device=rank_HB.device)[:, None]

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        V = z_HBVD.shape[2]
        # Not below 0, for items without label, which no slot counts.
        count_HB = self._sizes(z_HBVD)[self._group_HB].mul_(V).sub_(1).clamp_(min=0)
        return Degrees(count_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        H, B, _, D = x_HBVD.shape
        item_sum_FD = x_HBVD.sum(dim=2).flatten(0, 1)
        group_F = self._group_HB.flatten()
        class_sum_FD = torch.zeros_like(item_sum_FD).index_add_(0, group_F, item_sum_FD)
        return class_sum_FD[group_F].view(H, B, 1, D) - x_HBVD

    def pairs(self, z_BVD: Tensor) -> Pairs:
        (H, B), V = self.labels_HB.shape, z_BVD.shape[1]
        label_HN = self.labels_HB[:, :, None].expand(H, B, V).reshape(H, B * V)
        pull_HNN = (label_HN[:, :, None] == label_HN[:, None]).to(z_BVD.dtype)
        pull_HNN.diagonal(dim1=1, dim2=2).zero_()
        count_HN = pull_HNN.sum(dim=2)
        count_HN.view(H, B, V).mul_((self.labels_HB != MISSING)[:, :, None])
        push_HN = count_HN.clamp(max=1)
        # Both sides of a pair have equally many positives, so no average is needed.
        pull_HNN.mul_((push_HN / count_HN.clamp(min=1))[:, :, None])
        return Pairs(pull_HNN, push_HN, push_HN.sum(dim=1))

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        size_F = self._sizes(z_HBVD)
        return (size_F.view(self.labels_HB.shape) > 0).sum(dim=1).to(z_HBVD.dtype)

    def _sizes(self, z_HBVD: Tensor) -> Tensor:
        """Returns the number of known items in each of the H * B slots."""
        known_F = (self.labels_HB != MISSING).to(z_HBVD.dtype).flatten()
        return torch.zeros_like(known_F).index_add_(0, self._group_HB.flatten(), known_F)


def pairs_of_items(weight_HBB: Tensor, degrees: Degrees, num_views: int) -> Pairs:
    """Returns the coefficients from the weights between items, 1 between views of an item.

    An item without a positive must have weight 0 for every other item.
    """
    (H, B, _), V = weight_HBB.shape, num_views
    N = B * V
    share_HB = degrees.share_HB()
    pull_HBB = (share_HB[:, :, None] + share_HB[:, None, :]).mul_(weight_HBB).div_(2)
    pull_HNN = pull_HBB.new_empty(H, N, N)
    pull_HNN.view(H, B, V, B, V).copy_(pull_HBB[:, :, None, :, None])
    pull_HNN.diagonal(dim1=1, dim2=2).zero_()
    push_HB = share_HB * degrees.weight_HB
    push_HN = push_HB[:, :, None].expand(H, B, V).reshape(H, N)
    return Pairs(pull_HNN, push_HN, degrees.num_valid_H(V))
