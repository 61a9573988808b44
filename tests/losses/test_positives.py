"""Positives: sums over classes against sums over the pairs of a mask."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtcon_ray.losses.contrastive import contrast_by_head
from mtcon_ray.losses.positives import EqualLabel, OwnView, Relation
from mtcon_ray.losses.soft_positives import Near

exhaustively = settings(deadline=None, derandomize=True, max_examples=60)
labels_lists = st.lists(st.sampled_from([-1, 0, 3, 500]), min_size=1, max_size=7)


def assert_pairs(relation: Relation, x_BVD: torch.Tensor, mask_NN: torch.Tensor) -> None:
    """Checks `pairs` of a relation with weights 1 against its mask of positives."""
    count_N = mask_NN.sum(dim=1)
    share_NN = mask_NN / count_N.clamp(min=1)[:, None]
    has_partner_N = (count_N > 0).double()
    pull_HNN, push_HN, num_valid_H = relation.pairs(x_BVD)
    torch.testing.assert_close(pull_HNN, ((share_NN + share_NN.T) / 2)[None])
    assert torch.equal(push_HN, has_partner_N[None])
    assert num_valid_H.item() == has_partner_N.sum()


def assert_sums(relation: Relation, x_BVD: torch.Tensor, is_partner: torch.Tensor) -> None:
    """Checks degrees, pairs and sums against the mask of positives [N, N].

    Positives that do not depend on the space are checked in two spaces at once.
    """
    x_HBVD = torch.stack([x_BVD, -2 * x_BVD]) if isinstance(relation, OwnView) else x_BVD[None]
    mask_NN = (is_partner & ~torch.eye(x_BVD[:, :, 0].numel(), dtype=torch.bool)).double()
    count_N = mask_NN.sum(dim=1)
    V = x_BVD.shape[1]
    weight_HB, count_HB = relation.degrees(x_HBVD)
    assert torch.equal(count_HB.repeat_interleave(V, dim=1), count_N.expand(len(x_HBVD), -1))
    assert torch.equal(weight_HB, count_HB)
    assert_pairs(relation, x_BVD, mask_NN)
    got_HND = relation.sums(x_HBVD).flatten(1, 2)
    expected_HND = mask_NN @ x_HBVD.flatten(1, 2)
    has_partners = count_N > 0
    torch.testing.assert_close(
        got_HND[:, has_partners], expected_HND[:, has_partners], rtol=1e-12, atol=1e-12
    )


@exhaustively
@given(labels=labels_lists, V=st.integers(1, 3), missing=st.sampled_from(["skip", "self_only"]))
def test_equal_label_sums_over_all_other_rows_of_the_class(
    labels: list[int], V: int, missing: str
) -> None:
    B = len(labels)
    z_BVD = torch.randn(B, V, 3, generator=torch.Generator().manual_seed(B), dtype=torch.float64)
    label_N = torch.tensor(labels).repeat_interleave(V)
    item_N = torch.arange(B).repeat_interleave(V)
    is_partner = (label_N[:, None] == label_N) & (label_N != -1)
    if missing == "self_only":
        is_partner |= (item_N[:, None] == item_N) & (label_N == -1)[:, None]
    relation = EqualLabel(torch.tensor(labels), missing=missing)
    assert_sums(relation, z_BVD, is_partner)
    assert relation.num_groups(z_BVD[None]).tolist() == [len(set(labels) - {-1})]


@pytest.mark.parametrize("V", [1, 2, 3])
def test_own_view_sums_over_the_other_views_of_the_item(V: int) -> None:
    z_BVD = torch.randn(4, V, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    item_N = torch.arange(4).repeat_interleave(V)
    assert_sums(OwnView(), z_BVD, item_N[:, None] == item_N)
    assert OwnView().num_groups(z_BVD[None]).tolist() == [4]


@pytest.mark.parametrize("labels", [[2**24, 2**24 + 1], [2**62, 2**62 + 1]])
def test_labels_that_no_float_tells_apart_are_no_partners(labels: list[int]) -> None:
    """Labels may be hashes."""
    z_BVD = torch.zeros(2, 2, 3)
    pull_NN = EqualLabel(torch.tensor(labels)).pairs(z_BVD).pull_HNN[0]
    assert pull_NN.nonzero().tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_spaces_of_a_kind_width_and_temperature_are_computed_together() -> None:
    """Stacked heads keep their labels. Another kind, width or `missing` makes another group.

    So does another temperature, unless both are tensors.
    """
    z_by_head = {name: torch.randn(4, 2, 3) for name in "abcdefghi"}
    z_by_head |= {"wide": torch.randn(4, 2, 5)}
    labels = {"a": [0, 0, 1, -1], "b": [5, 4, 4, 5], "wide": [0, 0, 0, 0]}
    relations: dict[str, Relation] = {h: EqualLabel(torch.tensor(y)) for h, y in labels.items()}
    relations |= {"c": EqualLabel(torch.tensor([0, -1, 0, 1]), missing="self_only")}
    relations |= {"d": OwnView(), "e": OwnView()}
    near = Near(torch.tensor([0.0, 1.0, 2.0, 3.0]), bandwidth=1.0)
    relations |= {"f": near, "g": near}
    relations |= {"h": relations["a"], "i": relations["b"]}
    temperatures: dict[str, float | Tensor] = dict.fromkeys(z_by_head, 0.1)
    temperatures |= {"d": torch.tensor(0.1), "e": torch.tensor(0.2), "h": 0.2, "i": 0.3}
    found = contrast_by_head(z_by_head, relations, temperatures)
    groups = {tuple(heads): each.relation for heads, each in found}
    alone = [("wide",), ("c",), ("d", "e"), ("f",), ("g",), ("h",), ("i",)]
    assert list(groups) == [("a", "b"), *alone]
    both = groups["a", "b"]
    x_HBVD = torch.stack([z_by_head["a"], z_by_head["b"]])
    for h, head in enumerate("ab"):
        one = relations[head]
        assert torch.equal(both.sums(x_HBVD)[h], one.sums(x_HBVD[h : h + 1])[0])
        pull_HNN = both.pairs(x_HBVD[h]).pull_HNN
        assert torch.equal(pull_HNN[h], one.pairs(x_HBVD[h]).pull_HNN[0])
        for together, single in zip(
            both.degrees(x_HBVD), one.degrees(x_HBVD[h : h + 1]), strict=True
        ):
            assert torch.equal(together[h], single[0])
