"""Who is a partner of whom: the first of the three choices that make a contrastive method.

A relation over the N = B * V rows of a batch is a symmetric [N, N] matrix of weights that is
never formed: it keeps its structure to the end (labels stay labels, label sets stay sets) and
answers what a loss asks, in H spaces at once: the weighted sums of every row's partners, and how
many these are. Being symmetric, it answers what the gradient asks too.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING


class Degrees(NamedTuple):
    """What is known of each row's partners without looking at embeddings; float [H, N], [H]."""

    weight_HN: Tensor  # sum of their weights
    count_HN: Tensor  # their number
    num_groups_H: Tensor  # groups of rows that partnership tells apart


class Relation(Protocol):
    """A pair relation over the B items of a batch, each with V views."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        """Of every row of z_HBVD.flatten(1, 2)."""
        ...

    def sums(self, x_HBVD: Tensor) -> Tensor:
        """For every row the weighted sum of its partners' rows, in the shape of x.

        What a row without partners gets is not defined.
        """
        ...


class OwnView:
    """Partners are the other views of the same item: SimCLR (METHODS 1)."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        H, B, V, _ = z_HBVD.shape
        count_HN = z_HBVD.new_full((H, B * V), V - 1)
        return Degrees(count_HN, count_HN, z_HBVD.new_full((H,), B))

    def sums(self, x_HBVD: Tensor) -> Tensor:
        return x_HBVD.sum(dim=2, keepdim=True) - x_HBVD


class EqualLabel:
    """Partners are all other rows with the anchor's label: SupCon, MSCon (METHODS 2, 4).

    labels_HB is int64, MISSING where unknown; [B] serves one space. A row without label is
    nobody's partner; with missing="skip" it has none either, with "self_only" it keeps its own
    other views.
    """

    def __init__(self, labels_HB: Tensor, *, missing: str = "skip") -> None:
        assert missing in ("skip", "self_only"), missing
        self.labels_HB = torch.atleast_2d(labels_HB)
        self.missing = missing
        H, B = self.labels_HB.shape
        item_B = torch.arange(B, device=labels_HB.device)
        self._is_known_HB = self.labels_HB != MISSING
        # An item without label is a class of its own.
        class_HB = torch.where(self._is_known_HB, self.labels_HB, MISSING - 1 - item_B)
        space_H1 = torch.arange(H, device=labels_HB.device)[:, None]
        self._group_HB = _ranks(class_HB) + B * space_H1

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        H, B, V, _ = z_HBVD.shape
        known_HB = self._is_known_HB.to(z_HBVD.dtype)
        group_F = self._group_HB.flatten()
        size_F = known_HB.new_zeros(H * B).index_add(0, group_F, known_HB.flatten())
        alone = V - 1 if self.missing == "self_only" else 0
        count_HB = torch.where(self._is_known_HB, size_F[self._group_HB] * V - 1, alone)
        count_HN = count_HB.repeat_interleave(V, dim=1)
        num_groups_H = (size_F.view(H, B) > 0).sum(dim=1).to(z_HBVD.dtype)
        return Degrees(count_HN, count_HN, num_groups_H)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        H, B, _, D = x_HBVD.shape
        item_sum_FD = x_HBVD.sum(dim=2).flatten(0, 1)
        group_F = self._group_HB.flatten()
        class_sum_FD = torch.zeros_like(item_sum_FD).index_add_(0, group_F, item_sum_FD)
        return class_sum_FD[group_F].view(H, B, 1, D) - x_HBVD


def stacked(
    relation_by_head: Mapping[str, Relation], z_by_head: Mapping[str, Tensor]
) -> list[tuple[tuple[str, ...], Relation]]:
    """Heads whose losses one computation gives, in one relation: those of a kind and width."""
    groups: dict[object, list[str]] = {}
    for head, relation in relation_by_head.items():
        match relation:
            case EqualLabel():
                key: object = (EqualLabel, relation.missing, z_by_head[head].shape[-1])
            case OwnView():
                key = (OwnView, z_by_head[head].shape[-1])
            case _:
                key = head
        groups.setdefault(key, []).append(head)
    return [
        (tuple(heads), _stack([relation_by_head[h] for h in heads])) for heads in groups.values()
    ]


def _stack(relations: list[Relation]) -> Relation:
    first = relations[0]
    if not isinstance(first, EqualLabel):
        return first
    labels = [relation.labels_HB for relation in relations if isinstance(relation, EqualLabel)]
    return EqualLabel(torch.cat(labels), missing=first.missing)


def _ranks(values_HB: Tensor) -> Tensor:
    """Each value's place among its row's distinct ones; torch.unique would wait for the device."""
    sorted_HB, order_HB = values_HB.sort(dim=1)
    rank_HB = torch.zeros_like(sorted_HB)
    torch.cumsum(sorted_HB[:, 1:] != sorted_HB[:, :-1], dim=1, out=rank_HB[:, 1:])
    return torch.empty_like(rank_HB).scatter_(1, order_HB, rank_HB)
