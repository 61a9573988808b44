"""The logsumexp over all other rows, by tiles and by rows: values, gradients and memory."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mtcon_ray.losses import mtcon, tiled_logsumexp
from mtcon_ray.losses.tiled_logsumexp import log_sums, rows_gradient
from tests.losses.cases import random_rows

NO_ROOM = {torch.float32: 0.0, torch.float64: 0.0}


def plainly(z_HND: Tensor, rate_H: Tensor) -> Tensor:
    """Returns the logsumexp in plain operations, for autograd."""
    logits_HNN = rate_H[:, None, None] * (z_HND @ z_HND.transpose(1, 2))
    itself_NN = torch.eye(z_HND.shape[1], dtype=torch.bool)
    return logits_HNN.masked_fill(itself_NN, -torch.inf).logsumexp(dim=2)


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # what torch calls
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.numel = max(self.numel, out.numel())
        return out


@pytest.mark.parametrize("num_rows", [2, 7, 8, 9, 21])
@pytest.mark.parametrize("way", ["tiles", "rows"])
def test_every_way_gives_the_plain_values_and_gradients(
    way: str, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiled_logsumexp, "TILE", 4)
    monkeypatch.setattr(tiled_logsumexp, "ON_CPU", 100)
    if way == "rows":
        monkeypatch.setattr(tiled_logsumexp, "ROOM", NO_ROOM)
    z_HND = random_rows(3, num_rows, 5, seed=num_rows).requires_grad_()
    rate_H = torch.tensor([0.1, 3.0, 20.0], dtype=torch.float64)
    u_HN = random_rows(3, num_rows, seed=1)
    found_HN = log_sums(z_HND.detach(), rate_H)
    expected_HN = plainly(z_HND, rate_H)
    torch.testing.assert_close(found_HN, expected_HN, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad((u_HN * expected_HN).sum(), z_HND)
    got = rows_gradient(z_HND.detach(), rate_H, found_HN, u_HN)
    torch.testing.assert_close(got, gradient, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponents_without_room_are_shifted_row_by_row(dtype: torch.dtype) -> None:
    """At inverse temperature 1000, exp(-1000) is 0: unshifted, the third row would give log 0."""
    z_1ND = torch.tensor([[[1.0, 0], [1, 0], [-1, 0]]], dtype=dtype)
    rate_1 = torch.tensor([1000.0], dtype=dtype)
    found_1N = log_sums(z_1ND, rate_1)
    assert found_1N[0].tolist() == pytest.approx([1000, 1000, -1000 + 0.6931472], rel=1e-6)
    gradient = rows_gradient(z_1ND, rate_1, found_1N, torch.ones(1, 3))
    assert torch.isfinite(gradient).all()


def test_rows_that_are_longer_than_units_have_room_or_are_shifted_row_by_row() -> None:
    z_HND = 9 * random_rows(1, 6, 3, seed=0).float()
    rate_H = torch.ones(1)
    torch.testing.assert_close(log_sums(z_HND, rate_H), plainly(z_HND, rate_H))


@pytest.mark.parametrize("room", [tiled_logsumexp.ROOM, NO_ROOM], ids=["tiles", "strips"])
def test_memory_is_linear_in_the_batch(
    room: dict[torch.dtype, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operation in the losses and gradients of three heads returns a tensor of size N * N."""
    monkeypatch.setattr(tiled_logsumexp, "ROOM", room)
    monkeypatch.setattr(tiled_logsumexp, "ON_CPU", tiled_logsumexp.TILE**2)
    num_items = 1024
    z_by_task = {t: random_rows(num_items, 2, 4, seed=0).float().requires_grad_() for t in "abc"}
    labels = {
        task: torch.arange(num_items) % k for task, k in zip("abc", (2, 50, 900), strict=True)
    }
    with Largest() as seen:
        loss = mtcon(z_by_task, labels, temperature=0.1)
        assert isinstance(loss, Tensor)
        loss.backward()
    assert 2 * num_items < seen.numel <= tiled_logsumexp.TILE**2 < (2 * num_items) ** 2 / 4
