"""Partners from class sums against partners picked pair by pair."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcon_ray.losses.relations import EqualLabel, OwnView

exhaustively = settings(deadline=None, derandomize=True, max_examples=60)
labels_lists = st.lists(st.sampled_from([-1, 0, 3, 500]), min_size=1, max_size=7)


def pairwise(z: torch.Tensor, is_partner: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sum of similarities and count per row, from a full [N, N] mask."""
    z_ND = z.flatten(0, 1)
    mask_NN = is_partner & ~torch.eye(len(z_ND), dtype=torch.bool)
    return ((z_ND @ z_ND.T) * mask_NN).sum(dim=1), mask_NN.sum(dim=1).double()


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
    similarity_N, weight_N, count_N, num_groups = EqualLabel(
        torch.tensor(labels), missing=missing
    ).partners(z_BVD)
    expected_N, expected_count_N = pairwise(z_BVD, is_partner)
    torch.testing.assert_close(similarity_N, expected_N, rtol=1e-12, atol=1e-12)
    assert torch.equal(count_N, expected_count_N)
    assert torch.equal(weight_N, count_N)
    assert num_groups.item() == len(set(labels) - {-1})


@pytest.mark.parametrize("V", [1, 2, 3])
def test_own_view_sums_over_the_other_views_of_the_item(V: int) -> None:
    z_BVD = torch.randn(4, V, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    item_N = torch.arange(4).repeat_interleave(V)
    similarity_N, weight_N, count_N, num_groups = OwnView().partners(z_BVD)
    expected_N, expected_count_N = pairwise(z_BVD, item_N[:, None] == item_N)
    torch.testing.assert_close(similarity_N, expected_N, rtol=1e-12, atol=1e-12)
    assert torch.equal(count_N, expected_count_N)
    assert torch.equal(weight_N, count_N)
    assert num_groups.item() == 4


def test_rows_without_label_get_no_gradient_as_partners() -> None:
    z_BVD = torch.ones(3, 2, 2, requires_grad=True)
    EqualLabel(torch.tensor([0, -1, 0])).partners(z_BVD).similarity_N.sum().backward()
    assert z_BVD.grad is not None
    assert torch.equal(z_BVD.grad[1], torch.zeros(2, 2))
    assert (z_BVD.grad[[0, 2]] > 0).all()
