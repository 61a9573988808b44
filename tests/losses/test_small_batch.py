"""Small and large batches are computed as the reference: values, gradients, operations, memory.

The logsumexp over all other rows is computed by tiles and by rows.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mtcon_ray.losses import mtcon, small_batch, tiled_logsumexp
from mtcon_ray.losses.contrastive import contrast
from mtcon_ray.losses.positives import EqualLabel, OwnView
from mtcon_ray.losses.tiled_logsumexp import log_sums, rows_gradient
from tests.losses.cases import RELATIONS, random_rows, reference, weight_of

NO_ROOM = {torch.float32: 0.0, torch.float64: 0.0}


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
    """The last tile and the last strip of six rows have a single row."""
    monkeypatch.setattr(tiled_logsumexp, "TILE", 5)
    monkeypatch.setattr(tiled_logsumexp, "ON_CPU", 60)
    if not has_room:
        monkeypatch.setattr(tiled_logsumexp, "ROOM", NO_ROOM)
    z_HBVD = random_rows(2, 6, V, 4, seed=V).requires_grad_()
    tau_H = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    u_H = torch.tensor([0.3, -1.2], dtype=torch.float64)

    def with_gradients(loss_H: Tensor) -> tuple[Tensor, ...]:
        return loss_H, *torch.autograd.grad((u_H * loss_H).sum(), (z_HBVD, tau_H))

    expected = with_gradients(referred(name, z_HBVD, tau_H, reduction))
    for most_pairs in (small_batch.MOST_PAIRS, 0):
        monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
        found = contrast(z_HBVD.unbind(), RELATIONS[name](), tau_H, reduction)
        torch.testing.assert_close(with_gradients(found), expected, rtol=1e-11, atol=1e-12)


def test_a_gradient_of_any_layout_is_taken() -> None:
    """With reduction="none" the incoming gradient may have any strides."""
    z_HBVD = random_rows(2, 6, 2, 4, seed=0).requires_grad_()
    loss_HBV = contrast(z_HBVD.unbind(), OwnView(), 0.3, "none")
    u_VBH = random_rows(2, 6, 2, seed=1)
    (strided,) = torch.autograd.grad(loss_HBV, z_HBVD, u_VBH.permute(2, 1, 0), retain_graph=True)
    (plain,) = torch.autograd.grad(loss_HBV, z_HBVD, u_VBH.permute(2, 1, 0).contiguous())
    assert torch.equal(strided, plain)


def test_a_loss_may_be_asked_for_its_gradient_twice() -> None:
    """The forward pass computes the gradient; a backward pass must not overwrite it."""
    z_HBVD = random_rows(2, 6, 2, 4, seed=0).requires_grad_()
    tau_H = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    loss = contrast(z_HBVD.unbind(), OwnView(), tau_H).sum()
    once = torch.autograd.grad(loss, (z_HBVD, tau_H), retain_graph=True)
    again = torch.autograd.grad(3 * loss, (z_HBVD, tau_H))
    torch.testing.assert_close(again, tuple(3 * gradient for gradient in once))


def num_events(num_heads: int, temperature: float) -> int:
    """Returns the number of profiler events of a loss of 16 rows per head and its gradient."""
    rows = random_rows(num_heads, 8, 2, 4, seed=0).float()
    z_by_space = [z_BVD.clone().requires_grad_() for z_BVD in rows]
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        labels_HB = torch.arange(8).expand(num_heads, -1) % 3
        contrast(z_by_space, EqualLabel(labels_HB), temperature).sum().backward()
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


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    numel = 0

    # What torch calls.
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numel = max(self.numel, out.numel())
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponents_without_room_are_shifted_row_by_row(dtype: torch.dtype) -> None:
    """At inverse temperature 1000, exp(-1000) is 0: unshifted, the third row would give log 0."""
    z_1ND = torch.tensor([[[1.0, 0], [1, 0], [-1, 0]]], dtype=dtype)
    rate_1 = torch.tensor([1000.0], dtype=dtype)
    found_1N = log_sums(z_1ND, rate_1)
    assert found_1N[0].tolist() == pytest.approx([1000, 1000, -1000 + 0.6931472], rel=1e-6)
    assert torch.isfinite(rows_gradient(z_1ND, rate_1, found_1N, torch.ones(1, 3))).all()


def test_rows_that_are_longer_than_units_have_room_or_are_shifted_row_by_row() -> None:
    z_HND = 9 * random_rows(1, 6, 3, seed=0).float()
    logits_NN = (z_HND[0] @ z_HND[0].T).fill_diagonal_(-torch.inf)
    torch.testing.assert_close(log_sums(z_HND, torch.ones(1))[0], logits_NN.logsumexp(dim=1))


@pytest.mark.parametrize("room", [tiled_logsumexp.ROOM, NO_ROOM], ids=["tiles", "strips"])
def test_memory_is_linear(room: dict[torch.dtype, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation in the losses and gradients of three heads returns a tensor of size N * N."""
    monkeypatch.setattr(tiled_logsumexp, "ROOM", room)
    monkeypatch.setattr(tiled_logsumexp, "ON_CPU", tiled_logsumexp.TILE**2)
    num_items = 1024
    z_by_task = {t: random_rows(num_items, 2, 4, seed=0).float().requires_grad_() for t in "abc"}
    classes = {"a": 2, "b": 50, "c": 900}
    labels = {task: torch.arange(num_items) % num for task, num in classes.items()}
    with Largest() as seen:
        mtcon(z_by_task, labels, temperature=0.1).backward()
    assert 2 * num_items < seen.numel <= tiled_logsumexp.TILE**2 < (2 * num_items) ** 2 / 4
