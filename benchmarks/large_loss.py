"""Memory of three tasks' losses of large batches in two views, forward and backward once.

The first row is a single process with 16,384 images. A materialised similarity matrix of 32,768
views would take 4 GiB per task and pass. The other rows are the share of one of 64 ranks: it has
1/64 of the images, gathers the rows of all ranks, and computes the loss of the whole batch and the
gradients of its own rows. Here a copy takes the place of the exchange.

Memory is the peak rise of the process's resident memory. It includes the gathered rows and the
gradients but not the process's own rows.
"""

from collections.abc import Callable
from time import perf_counter
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.losses import TEMPERATURE, WIDTH, drawn
from benchmarks.table import markdown
from benchmarks.timing import peak_bytes
from mtcon_ray.losses import mtcon
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.step import gather

HEADER = ("3 tasks, forward and backward", "seconds", "peak memory, bytes")
HEAD_DIM = 32


def measure(
    num_images: int = 16_384, shared: tuple[int, ...] = (8_192, 16_384, 32_768, 65_536)
) -> str:
    """Returns the table of a single run each, since the memory does not vary. Takes minutes."""
    z_by_task, labels = drawn(num_images)

    def alone() -> None:
        mtcon(z_by_task, labels, temperature=TEMPERATURE).backward()

    views = f"{num_images:,} images, {2 * num_images:,} views: mtcon, width {WIDTH}"
    rows = [(views, *_measured(alone))]
    assert all(z.grad is not None and bool(z.grad.isfinite().all()) for z in z_by_task.values())
    _check_share()
    for number in shared:
        share, own_by_task = one_rank(number, world=64)
        title = f"{number:,} images, {2 * number:,} views: one of 64 ranks, width {HEAD_DIM}"
        rows.append((title, *_measured(share)))
        assert all(
            z.grad is not None and bool(z.grad.isfinite().all()) for z in own_by_task.values()
        )
    return markdown(HEADER, rows)


def one_rank(num_images: int, world: int) -> tuple[Callable[[], None], dict[str, Tensor]]:
    """Returns the first rank's part of a step from its rows on, and these rows, [N, D] by task."""
    z_by_task, labels = drawn(num_images, HEAD_DIM)
    ranks = Ranks(0, world)
    rows = {task: z_BVD.detach().flatten(0, 1) for task, z_BVD in z_by_task.items()}
    all_ND = torch.cat(list(rows.values()), dim=1)
    own = {t: z_ND[ranks.share(len(z_ND))].clone().requires_grad_() for t, z_ND in rows.items()}

    def share() -> None:
        with patch.object(dist, "all_gather_into_tensor", lambda out, _: out.copy_(all_ND)):
            gathered = gather(own, ranks, num_images)
        mtcon(gathered, labels, temperature=TEMPERATURE).backward()

    return share, own


def _check_share(num_images: int = 64, world: int = 4) -> None:
    """Raises AssertionError unless a rank has the gradients of its rows, times the ranks."""
    share, own_by_task = one_rank(num_images, world)
    share()
    z_by_task, labels = drawn(num_images, HEAD_DIM)
    mtcon(z_by_task, labels, temperature=TEMPERATURE).backward()
    for task, z_BVD in z_by_task.items():
        own, whole = own_by_task[task].grad, z_BVD.grad
        assert own is not None
        assert whole is not None
        expected = world * whole.flatten(0, 1)[: len(own)]
        torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-6)


def _measured(way: Callable[[], None]) -> tuple[str, str]:
    """Returns the seconds and the peak memory of a run."""
    started = perf_counter()
    peak = peak_bytes(way)
    return f"{perf_counter() - started:.1f}", f"{peak:,}"
