"""Who is a partner of whom: the first of the three choices that make a contrastive method.

A relation over N rows (row = one view of one item) answers one question about unit rows
z_ND: for every anchor i, the sum of its partners' similarities and the number of partners. It
keeps its structure to the end (labels stay labels), so no [N, N] mask is ever built.
"""

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING


class Partners(NamedTuple):
    """What a loss needs to know about each anchor's partners, all float [N]."""

    similarity_N: Tensor  # sum over partners p of z_i . z_p
    count_N: Tensor  # number of partners


class Relation(Protocol):
    """A pair relation over the B items of a batch, each with V views."""

    def partners(self, z_BVD: Tensor) -> Partners:
        """Sums over the partners of every row of z_BVD.flatten(0, 1)."""
        ...


class OwnView:
    """Partners are the other views of the same item: SimCLR (METHODS 1)."""

    def partners(self, z_BVD: Tensor) -> Partners:
        V = z_BVD.shape[1]
        sum_BVD = z_BVD.sum(dim=1, keepdim=True) - z_BVD
        similarity_N = (z_BVD * sum_BVD).sum(dim=2).flatten()
        return Partners(similarity_N, torch.full_like(similarity_N, V - 1))


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
        item_sum_BD = z_BVD.sum(dim=1) * known_B[:, None]
        class_sum_BD = item_sum_BD.new_zeros(B, D).index_add(0, class_B, item_sum_BD)
        size_B = item_sum_BD.new_zeros(B).index_add(0, class_B, known_B.to(item_sum_BD.dtype))
        partner_sum_BVD = class_sum_BD[class_B][:, None] - z_BVD
        count_B = size_B[class_B] * V - 1
        if self.missing == "self_only":
            own_BVD = z_BVD.sum(dim=1, keepdim=True) - z_BVD
            partner_sum_BVD = torch.where(known_B[:, None, None], partner_sum_BVD, own_BVD)
            count_B = torch.where(known_B, count_B, V - 1)
        else:
            count_B = count_B.masked_fill(~known_B, 0)
            partner_sum_BVD = partner_sum_BVD * known_B[:, None, None]
        similarity_N = (z_BVD * partner_sum_BVD).sum(dim=2).flatten()
        return Partners(similarity_N, count_B.repeat_interleave(V))
