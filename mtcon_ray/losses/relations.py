"""Who is a partner of whom: the first of the three choices that make a contrastive method.

A relation over the N = B * V rows of a batch is a symmetric [N, N] matrix of weights. In a large
batch it is never formed: labels stay labels and label sets stay sets to the end, and a relation
answers what a loss asks, in H spaces at once: the weighted sums of every row's partners, and how
many these are. Being symmetric, it answers what the gradient asks too. Where the pairs are few,
the matrix of the B items is the faster answer.
"""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor

from mtcon_ray.data.batch import MISSING

# All pairs of rows are in memory at once up to so many of them, in all spaces.
MOST_PAIRS = 2**20
# Up to it float32 holds every whole number; to compare floats takes a fraction of int64's time.
MOST_PLAIN = 2**24


def are_few(num_spaces: int, num_rows: int) -> bool:
    """Whether all pairs of rows may be in memory at once."""
    return num_spaces * num_rows**2 <= MOST_PAIRS


class Degrees(NamedTuple):
    """What is known of partners without embeddings, float [H, B]: the same for an item's views."""

    weight_HB: Tensor  # sum of their weights
    count_HB: Tensor  # their number

    def share_HB(self) -> Tensor:
        """1 / count, and 0 where there is none."""
        return self.count_HB.clamp(min=1).reciprocal_().mul_(self.count_HB > 0)

    def num_valid_H(self, num_views: int) -> Tensor:
        """Anchors with a partner, [H], in the dtype of the count."""
        return (self.count_HB > 0).sum(dim=1, dtype=self.count_HB.dtype) * num_views


class Pairs(NamedTuple):
    """What each of few rows pulls and pushes; N = B * V, item by item."""

    pull_HNN: Tensor
    """Weight / number of partners, averaged over the pair's two sides; 0 on the diagonal."""
    push_HN: Tensor | None
    """Sum of an anchor's weights / number of its partners, 0 without one; None: 1 for all."""
    num_valid_H: Tensor | None
    """Anchors with a partner; None: all."""


class Relation(Protocol):
    """A pair relation over the B items of a batch, each with V views."""

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        """Of every row of an item."""
        ...

    def sums(self, x_HBVD: Tensor) -> Tensor:
        """For every row the weighted sum of its partners' rows, in the shape of x.

        What a row without partners gets is not defined.
        """
        ...

    def pairs(self, z_BVD: Tensor) -> Pairs:
        """All of them, from the rows of one space; H is 1 where all spaces are alike.

        Only for few.
        """
        ...

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        """[H], groups of rows that are all partners within and none between; 2 without such groups.

        K such groups can be at most K / (K - 1) apart in cosine, all at once; two rows, 2.
        """
        ...

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        """[H, B], in nats: entropy of the partners' weights divided by their sum; 0 without any."""
        ...


class OwnView:
    """Partners are the other views of the same item: SimCLR (METHODS 1)."""

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

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        return self.degrees(z_HBVD).count_HB.clamp(min=1).log()


T = TypeVar("T")
R = TypeVar("R")


class once(Generic[T, R]):
    """`functools.cached_property` without its lock.

    It has one in Python 3.11, and torch.compile can't see through that.
    """

    def __init__(self, compute: Callable[[T], R]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: T, _: type[T]) -> R:
        value = self.compute(owner)
        setattr(owner, self.name, value)
        return value


def extremes(labels: Tensor) -> tuple[int, int]:
    """The least and the greatest label; waits for the device."""
    least, greatest = labels.aminmax()
    return int(least.item()), int(greatest.item())


def are_plain(least: int, greatest: int) -> bool:
    """Whether labels between these are all known, and whole numbers that any float type holds."""
    return least > MISSING and greatest <= MOST_PLAIN


class EqualLabel:
    """Partners are all other rows with the anchor's label: SupCon, MSCon (METHODS 2, 4).

    labels_HB is int64, MISSING where unknown; [B] serves one space. A row without label is
    nobody's partner; with missing="skip" it has none either, with "self_only" it keeps its own
    other views. `plain` says whether the labels `are_plain`, None that nobody has looked.
    """

    def __init__(
        self, labels_HB: Tensor, *, missing: str = "skip", plain: bool | None = None
    ) -> None:
        assert missing in ("skip", "self_only"), missing
        self.labels_HB = labels_HB if labels_HB.ndim == 2 else labels_HB.unsqueeze(0)
        self.missing = missing
        self.plain = plain

    @once
    def _is_known_HB(self) -> Tensor:
        is_known_HB: Tensor = self.labels_HB != MISSING
        return is_known_HB

    @once
    def _class_HB(self) -> Tensor:
        """Of an item without label, a class of its own."""
        item_B = torch.arange(self.labels_HB.shape[1], device=self.labels_HB.device)
        return torch.where(self._is_known_HB, self.labels_HB, MISSING - 1 - item_B)

    @once
    def _group_HB(self) -> Tensor:
        """The class as one of H * B places."""
        H, B = self.labels_HB.shape
        space_H1 = torch.arange(H, device=self.labels_HB.device)[:, None]
        group_HB: Tensor = _ranks(self._class_HB) + B * space_H1
        return group_HB

    def degrees(self, z_HBVD: Tensor) -> Degrees:
        V = z_HBVD.shape[2]
        count_HB = self._sizes(z_HBVD)[self._group_HB].mul_(V).sub_(1)
        alone = V - 1 if self.missing == "self_only" else 0
        count_HB = torch.where(self._is_known_HB, count_HB, alone)
        return Degrees(count_HB, count_HB)

    def sums(self, x_HBVD: Tensor) -> Tensor:
        H, B, _, D = x_HBVD.shape
        item_sum_FD = x_HBVD.sum(dim=2).flatten(0, 1)
        group_F = self._group_HB.flatten()
        class_sum_FD = torch.zeros_like(item_sum_FD).index_add_(0, group_F, item_sum_FD)
        return class_sum_FD[group_F].view(H, B, 1, D) - x_HBVD

    def pairs(self, z_BVD: Tensor) -> Pairs:
        (H, B), V = self.labels_HB.shape, z_BVD.shape[1]
        N = B * V
        plain = self._look() if self.plain is None else self.plain
        class_HB1 = (self.labels_HB if plain else self._class_HB).unsqueeze(2)
        class_HBV = z_BVD.new_empty(H, B, V) if plain else class_HB1.new_empty(H, B, V)
        # Converted and repeated at once: to start an operation takes longer than this one.
        class_HN = class_HBV.copy_(class_HB1).view(H, N)
        is_partner_HNN = z_BVD.new_empty(H, N, N)
        torch.eq(class_HN.unsqueeze(2), class_HN.unsqueeze(1), out=is_partner_HNN)
        is_partner_HNN.diagonal(dim1=1, dim2=2).zero_()
        count_HN = is_partner_HNN.sum(dim=2)
        if plain and V > 1:
            # Both sides of a pair have equally many partners.
            return Pairs(is_partner_HNN.div_(count_HN.unsqueeze(2)), None, None)
        if self.missing == "skip":
            count_HN = count_HN * self._is_known_HB.repeat_interleave(V, dim=1)
        has_partner_HN = (count_HN > 0).to(z_BVD.dtype)
        share_HN = has_partner_HN / count_HN.clamp(min=1)
        pull_HNN = is_partner_HNN.mul_(share_HN.unsqueeze(2))
        return Pairs(pull_HNN, has_partner_HN, has_partner_HN.sum(dim=1))

    def _look(self) -> bool:
        # Elsewhere looking would wait for the device.
        is_free = self.labels_HB.device.type == "cpu" and not torch.compiler.is_compiling()
        return is_free and are_plain(*extremes(self.labels_HB))

    def num_groups(self, z_HBVD: Tensor) -> Tensor:
        size_F = self._sizes(z_HBVD)
        return (size_F.view(self.labels_HB.shape) > 0).sum(dim=1).to(z_HBVD.dtype)

    def entropies(self, z_HBVD: Tensor) -> Tensor:
        return self.degrees(z_HBVD).count_HB.clamp(min=1).log()

    def _sizes(self, z_HBVD: Tensor) -> Tensor:
        """Known items in each of the H * B places."""
        known_F = self._is_known_HB.to(z_HBVD.dtype).flatten()
        return torch.zeros_like(known_F).index_add_(0, self._group_HB.flatten(), known_F)


def pairs_of_items(weight_HBB: Tensor, degrees: Degrees, num_views: int) -> Pairs:
    """From what a view of one item weighs for a view of another, 1 for one of the same item.

    What stands there for an item without partners, beside itself, must be 0.
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
    equal = [relation.labels_HB for relation in relations if isinstance(relation, EqualLabel)]
    return EqualLabel(torch.cat(equal), missing=first.missing)


def _ranks(values_HB: Tensor) -> Tensor:
    """Each value's place among its row's distinct ones; torch.unique would wait for the device."""
    sorted_HB, order_HB = values_HB.sort(dim=1)
    rank_HB = torch.zeros_like(sorted_HB)
    torch.cumsum(sorted_HB[:, 1:] != sorted_HB[:, :-1], dim=1, out=rank_HB[:, 1:])
    return torch.empty_like(rank_HB).scatter_(1, order_HB, rank_HB)
