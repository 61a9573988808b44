"""An epoch of MTCon with a ResNet-18 at 64 pixels on the CPU, and what no epoch can do without.

Peer: a loop as SupContrast's: PIL augmentations in a DataLoader with a worker per core, the same
network in torch's default memory format, one loss per task, SGD, float32. The limit is the
encoder and its heads forward and backward on views that lie in memory. That both loops compute the
same loss and gradients of the same views is checked before they are timed.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from benchmarks.losses import supcontrast_loss
from benchmarks.machine import finish, usable_cores
from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from benchmarks.views import Photographs, recipe
from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.models.network import Network
from mtcon_ray.run import Run
from mtcon_ray.spec import RunSpec, parse_spec
from mtcon_ray.training.step import compute_gradients

HEADER = ("an epoch, ResNet-18, 64 px, batch 64", "views per second", "ours is faster by")
ALWAYS_LATER = 1000
CPU = torch.device("cpu")


def measure(num_images: int = 768, rounds: int = 3, encoder: str = "resnet18") -> str:
    """The table: float32, and bfloat16 where the processor computes in it."""
    rows: list[tuple[str, ...]] = []
    with TemporaryDirectory() as folder:
        dataset = drawn(spec_of(num_images, encoder, "float32"), Path(folder))
        ours = {
            precision: run_of(
                spec_of(num_images, encoder, precision), dataset, Path(folder) / precision
            )
            for precision in ("float32", "bfloat16")
        }
        single, half = ours["float32"], ours["bfloat16"]
        check_same_step(single.spec, dataset, Path(folder) / "check")
        num_views = 2 * 64 * (len(dataset.table.rows("train")) // 64)
        ways: dict[str, Callable[[], object]] = {
            "mtcon-ray": partial(next, iter(single)),
            "mtcon-ray, bfloat16": partial(next, iter(half)),
            "as SupContrast": partial(next, supcontrast(single, dataset)),
            "limit: the network alone": partial(network_alone, single, num_views),
            "limit in bfloat16": partial(network_alone, half, num_views),
        }
        times = interleaved(ways, rounds)
    for name, each in times.items():
        base = "mtcon-ray, bfloat16" if name == "limit in bfloat16" else "mtcon-ray"
        shown = "1" if name == base else str(ratio(each, times[base]))
        rows.append((name, f"{num_views / each.median:,.0f}", shown))
    return markdown(HEADER, rows)


def spec_of(
    num_images: int,
    encoder: str,
    precision: str,
    compile: str = "none",
    *,
    size: int = 64,
    batch_size: int = 64,
) -> RunSpec:
    """No evaluation and no checkpoint before an epoch that is never reached."""
    return parse_spec(
        {
            "name": "benchmark",
            "data": {
                "kind": "drawn",
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
                "checkpoint_every": ALWAYS_LATER,
            },
            "evaluate": {"every": ALWAYS_LATER},
        }
    )


def drawn(spec: RunSpec, folder: Path) -> Dataset:
    """The embedded data set, decoded."""
    return open_dataset(spec.data, seed=0, view_size=spec.views.size, store=folder / "store")


def run_of(spec: RunSpec, dataset: Dataset, folder: Path, device: torch.device = CPU) -> Run:
    """A training that has not begun."""
    folder.mkdir()
    return Run(spec, dataset, folder, device=device)


def check_same_step(
    spec: RunSpec, dataset: Dataset, folder: Path, device: torch.device = CPU
) -> None:
    """Raises AssertionError where the peer's loss or gradients of some views are not ours."""
    learner = run_of(spec, dataset, folder, device).learner
    network = learner.network.double()
    peer = deepcopy(network).to(memory_format=torch.contiguous_format)
    x_NCHW = torch.randn(16, 3, 32, 32, dtype=torch.float64, device=device)
    rows = dataset.table.rows("train")[:8]
    labels = {t: torch.from_numpy(dataset.table.labels[t][rows]).to(device) for t in dataset.tasks}
    done = compute_gradients(learner, x_NCHW, Batch(labels, len(rows)))
    loss = peer_loss(peer, x_NCHW, labels)
    loss.backward()
    torch.testing.assert_close(done.objective.double(), loss.detach(), rtol=1e-6, atol=1e-8)
    for one, other in zip(network.parameters(), peer.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-5, atol=1e-8)


class Numbered(TorchDataset[tuple[Tensor, int]]):
    """Photographs with their places, by which their labels are found."""

    def __init__(self, photographs: Photographs) -> None:
        self.photographs = photographs

    def __len__(self) -> int:
        return len(self.photographs)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.photographs[index], index


def supcontrast(like: Run, dataset: Dataset) -> Iterator[None]:
    """One epoch per `next`, of a network that starts as the given run's."""
    network = deepcopy(like.network).to(memory_format=torch.contiguous_format)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    rows, device = dataset.table.rows("train"), like.device
    labels = {t: torch.from_numpy(dataset.table.labels[t][rows]) for t in dataset.tasks}
    photographs = Photographs(dataset.images[rows], recipe(like.spec.views))
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
            peer_loss(network, x_NCHW, found).backward()
            optimizer.step()
        finish(device)
        yield


def peer_loss(network: Network, x_NCHW: Tensor, labels: dict[str, Tensor]) -> Tensor:
    """The sum of SupContrast's losses, one task after the other."""
    z_by_task = network(x_NCHW)
    losses = [
        supcontrast_loss(z_by_task[t].unflatten(0, (-1, 2)), labels_B)
        for t, labels_B in labels.items()
    ]
    return torch.stack(losses).sum()


def network_alone(like: Run, num_views: int) -> None:
    """Forward and backward of everything with parameters, on one batch again and again."""
    size, rows, device = like.spec.views.size, 2 * like.spec.train.batch_size, like.device
    x_NCHW = torch.randn(rows, 3, size, size, device=device)
    x_NCHW = x_NCHW.contiguous(memory_format=torch.channels_last)
    dtype = like.learner.autocast_dtype
    for _ in range(num_views // rows):
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            z_by_head = like.learner.forward(x_NCHW)
        torch.stack([z_ND.float().sum() for z_ND in z_by_head.values()]).sum().backward()
        like.network.zero_grad()
    finish(device)
