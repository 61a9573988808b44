"""An epoch of MTCon with a ResNet-18 at 64 pixels on the CPU, against a peer and a lower limit.

The peer is a training loop like SupContrast's: PIL augmentations in a DataLoader with a worker per
core, the same network in torch's default memory format, a loss per task, SGD, float32. The limit
is the encoder and its heads, forward and backward, on views already in memory.

Before the timing, a check in float64 compares both loops' loss and gradients of the same views.
Another check compares the distance of bfloat16 from float32 with the distance of torch's autocast.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset as TorchDataset

from benchmarks.losses import supcontrast_loss
from benchmarks.machine import finish, usable_cores
from benchmarks.table import markdown
from benchmarks.timing import Times, interleaved, ratio
from benchmarks.views import Photographs, TwoCrops, recipe
from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.models.network import Network
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.training.device import pick_autocast
from mtcon_ray.training.step import compute_gradients
from mtcon_ray.training.trainer import Trainer

OURS, OURS_IN_HALF = "mtcon-ray", "mtcon-ray, bfloat16"
PEER = "as SupContrast, float32"
LIMIT, LIMIT_IN_HALF = "limit: the network alone", "limit: the network alone, bfloat16"
HEADER = ("an epoch, ResNet-18, 64 px, batch 64", "views per second", "ours is faster by")
ALWAYS_LATER = 1000
# Allowed relative error of a bfloat16 loss (8 bits), and the largest allowed ratio of our
# gradients' error to the error of torch's autocast.
BFLOAT16_LOSS, MUCH_MORE = 0.01, 1.2
CPU = torch.device("cpu")


def measure(num_images: int = 768, rounds: int = 3, encoder: str = "resnet18") -> str:
    """Returns the table for float32, and for bfloat16 if the processor has instructions for it."""
    with TemporaryDirectory() as folder:
        dataset = opened(spec_of(num_images, encoder, "float32"), Path(folder))
        single, *halves = (
            run_of(spec_of(num_images, encoder, precision), dataset, Path(folder) / precision)
            for precision in ("float32", "bfloat16")
            if precision == "float32" or pick_autocast("auto", CPU)
        )
        check_same_step(single.spec, dataset, Path(folder) / "check")
        num_views = 2 * 64 * (len(dataset.table.rows("train")) // 64)
        ways: dict[str, Callable[[], object]] = {
            OURS: partial(next, iter(single)),
            PEER: partial(next, supcontrast(single, dataset)),
            LIMIT: partial(network_alone, single, num_views),
        }
        for half in halves:
            check_close_step(half, single)
            ways[OURS_IN_HALF] = partial(next, iter(half))
            ways[LIMIT_IN_HALF] = partial(network_alone, half, num_views)
        times = interleaved(ways, rounds)
    compared = [(PEER, OURS), (LIMIT, OURS)]
    if halves:
        compared += [(PEER, OURS_IN_HALF), (LIMIT_IN_HALF, OURS_IN_HALF)]
    return markdown(HEADER, rows_of(times, compared, num_views))


def rows_of(
    times: dict[str, Times], compared: Sequence[tuple[str, str]], num_views: int
) -> list[tuple[str, ...]]:
    """Returns table rows: each of our trainings, followed by the alternatives compared with it."""
    rows: list[tuple[str, ...]] = []
    for ours, pairs in groupby(compared, key=itemgetter(1)):
        rows.append((ours, f"{num_views / times[ours].median:,.0f}", "1"))
        for other, _ in pairs:
            speed = f"{num_views / times[other].median:,.0f}"
            rows.append((other, speed, str(ratio(times[other], times[ours]))))
    return rows


def spec_of(
    num_images: int,
    encoder: str,
    precision: str,
    compile: str = "none",
    *,
    size: int = 64,
    batch_size: int = 64,
) -> RunSpec:
    """Returns a spec without evaluation and checkpoints, due only in an unreachable epoch."""
    return parse_spec(
        {
            "name": "benchmark",
            "data": {
                "kind": "synthetic",
                "num_items": round(num_images / 0.7) + 1,
                "tasks": ["shape", "colour", "texture"],
            },
            "views": {"size": size},
            "model": {"encoder": {"name": encoder}},
            "method": {"name": "mtcon"},
            "train": {
                "epochs": ALWAYS_LATER,
                "batch_size": batch_size,
                "lr": 0.01,
                "precision": precision,
                "compile": compile,
                "checkpoint_seconds": ALWAYS_LATER,
            },
            "evaluate": {"every": ALWAYS_LATER},
        }
    )


def opened(spec: RunSpec, folder: Path) -> Dataset:
    """Returns the spec's data set, with its cache of decoded images below `folder`."""
    return open_dataset(spec.data, view_size=spec.views.size, store=folder / "store")


def run_of(
    spec: RunSpec, dataset: Dataset, folder: Path, device: torch.device = CPU, **options: Any
) -> Trainer:
    """Returns an unstarted training."""
    folder.mkdir()
    return Trainer(spec, dataset, folder, device=device, **options)


def check_same_step(spec: RunSpec, dataset: Dataset, folder: Path) -> None:
    """Checks the peer's loss and gradients against ours; raises AssertionError if they differ."""
    learner = run_of(spec, dataset, folder).learner
    network = learner.network.double()
    peer = deepcopy(network).to(memory_format=torch.contiguous_format)
    x_NCHW = torch.randn(16, 3, 32, 32, dtype=torch.float64)
    rows = dataset.table.rows("train")[:8]
    labels = {t: torch.from_numpy(dataset.table.labels[t][rows]) for t in dataset.tasks}
    done = compute_gradients(learner, x_NCHW, Batch(labels, len(rows)))
    loss = peer_loss(peer, x_NCHW, labels)
    loss.backward()
    torch.testing.assert_close(done.objective.double(), loss.detach(), rtol=1e-6, atol=1e-8)
    for one, other in zip(network.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-8)


def check_close_step(run: Trainer, exact: Trainer) -> None:
    """Checks our first bfloat16 step against torch's autocast by their distance to float32.

    Both runs must start from the same parameters. The error of all gradients together is compared
    with torch's own error, not with a fixed bound. In bfloat16, backpropagation through a ResNet-18
    gives gradients with a relative error of about a quarter. Raises AssertionError.
    """
    x_NCHW, batch = exact._batches(0)
    (loss, gradients), (expected, exact_gradients) = (
        _loss_and_gradients(each, x_NCHW, batch) for each in (run, exact)
    )
    peer = deepcopy(exact.network)
    peer.zero_grad()
    with torch.autocast(exact.device.type, dtype=torch.bfloat16):
        z_by_task = peer(x_NCHW)
    _sum_of_losses(z_by_task, batch.labels).backward()
    error, usual = (
        ((found - exact_gradients).norm() / exact_gradients.norm()).item()
        for found in (gradients, _in_one_row(peer))
    )
    assert abs(loss / expected - 1) < BFLOAT16_LOSS, f"losses differ: {loss} and {expected}"
    assert error < MUCH_MORE * usual, f"gradients differ by {error:.1e}, torch's by {usual:.1e}"


def _loss_and_gradients(run: Trainer, x_NCHW: Tensor, batch: Batch) -> tuple[float, Tensor]:
    done = compute_gradients(run.learner, x_NCHW, batch)
    return done.objective.item(), _in_one_row(run.network)


def _in_one_row(network: Network) -> Tensor:
    """Returns the gradients of all parameters as a vector."""
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


class Numbered(TorchDataset[tuple[Tensor, int]]):
    """Photographs with their indices for looking up the labels."""

    def __init__(self, photographs: Photographs) -> None:
        self.photographs = photographs

    def __len__(self) -> int:
        return len(self.photographs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.photographs[index], index


def supcontrast(
    like: Trainer,
    dataset: Dataset,
    images: list[bytes] | np.ndarray | None = None,
    dtype: torch.dtype | None = None,
) -> Iterator[None]:
    """Runs the peer, an epoch per `next`. Starts from a copy of the run's network.

    `images` are those of the train rows, by default the data set's. `dtype` is autocast's.
    """
    network = deepcopy(like.network).to(memory_format=torch.contiguous_format)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    rows, device = dataset.table.rows("train"), like.device
    labels = {t: torch.from_numpy(dataset.table.labels[t][rows]) for t in dataset.tasks}
    images = dataset.images[rows] if images is None else images
    photographs = Photographs(images, TwoCrops(recipe(like.spec.views)))
    loader = DataLoader(
        Numbered(photographs),
        like.spec.train.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=usable_cores(),
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )
    while True:
        for views_BVCHW, index_B in loader:
            x_NCHW = views_BVCHW.flatten(0, 1).to(device, non_blocking=True)
            found = {t: labels[t][index_B].to(device, non_blocking=True) for t in dataset.tasks}
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                loss = peer_loss(network, x_NCHW, found)
            loss.backward()
            optimizer.step()
        finish(device)
        yield


def peer_loss(network: Network, x_NCHW: Tensor, labels: dict[str, Tensor]) -> Tensor:
    """Returns the sum over tasks of SupContrast's loss, computed task by task."""
    return _sum_of_losses(network(x_NCHW), labels)


def _sum_of_losses(z_by_task: dict[str, Tensor], labels: dict[str, Tensor]) -> Tensor:
    losses = [
        supcontrast_loss(z_by_task[t].unflatten(0, (-1, 2)), labels_B)
        for t, labels_B in labels.items()
    ]
    return torch.stack(losses).sum()


def network_alone(like: Trainer, num_views: int) -> None:
    """Runs encoder and heads forward and backward on a batch repeatedly, without a loss."""
    x_NCHW = random_views(like)
    for _ in range(num_views // len(x_NCHW)):
        network_step(like, x_NCHW, like.learner.forward)
    finish(like.device)


def random_views(like: Trainer) -> Tensor:
    """Returns a batch of two views per item, [N, 3, size, size] in channels_last."""
    size, rows = like.spec.views.size, 2 * like.spec.train.batch_size
    x_NCHW = torch.randn(rows, 3, size, size, device=like.device)
    return x_NCHW.contiguous(memory_format=torch.channels_last)


def network_step(
    like: Trainer, x_NCHW: Tensor, forward: Callable[[Tensor], dict[str, Tensor]]
) -> None:
    """Runs encoder and heads forward and backward; `forward` returns the rows of the heads."""
    device, dtype = like.device, like.learner.autocast_dtype
    with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
        z_by_head = forward(x_NCHW)
    torch.stack([z_ND.float().sum() for z_ND in z_by_head.values()]).sum().backward()
    like.network.zero_grad()
