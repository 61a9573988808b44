"""Small and large batches are computed as the reference, values and gradients."""

from functools import partial

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import small_batch, tiled_logsumexp
from mtcon_ray.losses.contrastive import contrast
from mtcon_ray.losses.positives import EqualLabel, OwnView
from tests.losses.cases import RELATIONS, random_rows, reference, weight_of


def referred(name: str, z_HBVD: Tensor, tau_H: Tensor, reduction: str) -> Tensor:
    """The loss by the reference, [H]."""
    loss_HN, is_valid_HN = reference(z_HBVD, partial(weight_of, name), tau_H)
    return loss_HN.sum(dim=1) / (1 if reduction == "sum" else is_valid_HN.sum(dim=1).clamp(min=1))


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("V", [1, 2, 3])
@pytest.mark.parametrize("has_room", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_few_pairs_and_many_agree_with_the_reference(
    name: str, V: int, has_room: bool, reduction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_room:
        monkeypatch.setattr(tiled_logsumexp, "ROOM", {torch.float64: 0.0})
    z_HBVD = random_rows(2, 6, V, 4, seed=V).requires_grad_()
    tau_H = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    u_H = torch.tensor([0.3, -1.2], dtype=torch.float64)

    def with_gradients(loss_H: Tensor) -> tuple[Tensor, ...]:
        return loss_H, *torch.autograd.grad((u_H * loss_H).sum(), (z_HBVD, tau_H))

    expected = with_gradients(referred(name, z_HBVD, tau_H, reduction))
    for most_pairs in (small_batch.MOST_PAIRS, 0):
        monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
        found = contrast(z_HBVD.unbind(), RELATIONS[name](), tau_H, reduction).loss
        torch.testing.assert_close(with_gradients(found), expected, rtol=1e-11, atol=1e-12)


def test_a_gradient_of_any_layout_is_taken() -> None:
    """With reduction="none" the incoming gradient may have any strides."""
    z_HBVD = random_rows(2, 6, 2, 4, seed=0).requires_grad_()
    loss_HBV = contrast(z_HBVD.unbind(), OwnView(), 0.3, "none").loss
    u_VBH = random_rows(2, 6, 2, seed=1)
    (strided,) = torch.autograd.grad(loss_HBV, z_HBVD, u_VBH.permute(2, 1, 0), retain_graph=True)
    (plain,) = torch.autograd.grad(loss_HBV, z_HBVD, u_VBH.permute(2, 1, 0).contiguous())
    assert torch.equal(strided, plain)


def test_a_loss_may_be_asked_for_its_gradient_twice() -> None:
    """The forward pass computes the gradient; a backward pass must not overwrite it."""
    z_HBVD = random_rows(2, 6, 2, 4, seed=0).requires_grad_()
    tau_H = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    loss = contrast(z_HBVD.unbind(), OwnView(), tau_H).loss.sum()
    once = torch.autograd.grad(loss, (z_HBVD, tau_H), retain_graph=True)
    for one, other in zip(once, torch.autograd.grad(3 * loss, (z_HBVD, tau_H)), strict=True):
        torch.testing.assert_close(3 * one, other)


def num_events(num_heads: int, temperature: float) -> int:
    """Returns the number of profiler events of a loss of 16 rows per head and its gradient."""
    rows = random_rows(num_heads, 8, 2, 4, seed=0).float()
    z_by_space = [z_BVD.clone().requires_grad_() for z_BVD in rows]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        labels_HB = torch.arange(8).expand(num_heads, -1) % 3
        contrast(z_by_space, EqualLabel(labels_HB), temperature).loss.sum().backward()
    return int(sum(event.count for event in profile.key_averages()))


def test_few_operations_serve_all_heads() -> None:
    """Small batches are dominated by launch overhead, so the number of operations is bounded."""
    one, three = num_events(1, 0.1), num_events(3, 0.1)
    # Each further head adds views and a node of the graph for its gradient: seven events.
    assert three - one <= 2 * 7
    assert three < 160


def test_logits_up_to_65_need_not_be_shifted() -> None:
    """A shift by the row maximum takes more operations."""
    assert num_events(3, 1 / 64) == num_events(3, 0.1) < num_events(3, 1 / 67)
