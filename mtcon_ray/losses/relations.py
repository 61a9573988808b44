"""Who is a partner of whom: the first of the three choices that make a contrastive method.

A relation over N rows (row = one view of one item) answers one question about unit rows
z_ND: for every anchor i, the weighted sum of its partners' similarities, the sum of their
weights, and their number. It keeps its structure to the end (labels stay labels, label sets
stay sets), so no [N, N] mask is ever built.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING


class Partners(NamedTuple):
    """What a loss needs to know about each anchor's partners, float [N]."""

    similarity_N: Tensor  # sum over partners p of w_ip z_i . z_p
    weight_N: Tensor  # sum over partners p of w_ip
    count_N: Tensor  # number of partners
    num_groups: Tensor  # scalar: groups of rows that partnership tells apart


class Relation(Protocol):
    """A pair relation over the B items of a batch, each with V views."""

    def partners(self, z_BVD: Tensor) -> Partners:
        """Sums over the partners of every row of z_BVD.flatten(0, 1)."""
        ...


class OwnView:
    """Partners are the other views of the same item: SimCLR (METHODS 1)."""

    def partners(self, z_BVD: Tensor) -> Partners:
        V = z_BVD.shape[1]
        similarity_N = (z_BVD * _own_sum(z_BVD)).sum(dim=2).flatten()
        count_N = torch.full_like(similarity_N, V - 1)
        return Partners(similarity_N, count_N, count_N, count_N.new_tensor(len(z_BVD)))


class EqualLabel:
    """Partners are all other rows with the anchor's label: SupCon, MSCon (METHODS 2, 4).

    labels_B is int64 [B], MISSING where unknown. A row without label is nobody's partner;
    with missing="skip" it has none either, with "self_only" it keeps its own other views.
    """

    def __init__(self, labels_B: Tensor, *, missing: str = "skip") -> None:
        assert missing in ("skip", "self_only"), missing
        self.labels_B = labels_B
        self.missing = missing

    def partners(self, z_BVD: Tensor) -> Partners:
        B, V, D = z_BVD.shape
        known_B = self.labels_B != MISSING
        # Class sums give each anchor's numerator: z_i . (S_class(i) - z_i).
        _, class_B = torch.unique(self.labels_B, return_inverse=True)
        item_sum_BD = z_BVD.sum(dim=1)
        class_sum_GD = item_sum_BD.new_zeros(B, D).index_add(0, class_B, item_sum_BD)
        size_G = item_sum_BD.new_zeros(B).index_add(0, class_B, known_B.to(item_sum_BD.dtype))
        partner_sum_BVD = class_sum_GD[class_B][:, None] - z_BVD
        count_B = size_G[class_B] * V - 1
        num_groups = (size_G > 0).sum().to(z_BVD.dtype)
        return among_known(
            z_BVD, partner_sum_BVD, count_B, count_B, num_groups, known_B, self.missing
        )


def among_known(
    z_BVD: Tensor,
    partner_sum_BVD: Tensor,
    weight_B: Tensor,
    count_B: Tensor,
    num_groups: Tensor,
    known_B: Tensor,
    missing: str,
) -> Partners:
    """Partners where an item's label is known; elsewhere none, or its own other views."""
    V = z_BVD.shape[1]
    unknown_BVD = _own_sum(z_BVD) if missing == "self_only" else torch.zeros_like(z_BVD)
    unknown_count = V - 1 if missing == "self_only" else 0
    partner_sum_BVD = torch.where(known_B[:, None, None], partner_sum_BVD, unknown_BVD)
    weight_B, count_B = (torch.where(known_B, x_B, unknown_count) for x_B in (weight_B, count_B))
    similarity_N = (z_BVD * partner_sum_BVD).sum(dim=2).flatten()
    weight_N, count_N = weight_B.repeat_interleave(V), count_B.repeat_interleave(V)
    return Partners(similarity_N, weight_N, count_N, num_groups)


def _own_sum(z_BVD: Tensor) -> Tensor:
    """For each row, the sum of its item's other views."""
    return z_BVD.sum(dim=1, keepdim=True) - z_BVD
