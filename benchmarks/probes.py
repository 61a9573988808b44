"""Linear probes of three tasks and their bootstraps, 20 epochs, on a frozen encoder.

Peer: SupContrast's main_linear.py for each task: every epoch encodes every image again. One such
epoch of one task is timed, and counted 20 times for each task, with the bootstrap as a loop over
resamples.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch
from torch import nn

from benchmarks.table import markdown
from benchmarks.training import drawn, spec_of
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.views import evaluation_views
from mtcon_ray.evaluation import protocol
from mtcon_ray.models.network import Network
from mtcon_ray.run import Run
from mtcon_ray.spec import RunSpec

HEADER = ("3 probes, 20 epochs, 1,000 resamples", "seconds", "ours is faster by")


def measure(num_images: int = 9188, encoder: str = "resnet18") -> str:
    """The table; the peer's seconds are those of one epoch, counted 60 times."""
    with TemporaryDirectory() as folder:
        spec = spec_of(round(0.7 * num_images), encoder, "float32")
        dataset = drawn(spec, Path(folder))
        network = Run(spec, dataset, Path(folder), device=torch.device("cpu")).network
        started = perf_counter()
        protocol.report(
            network, dataset, spec.evaluate, spec.views, device=torch.device("cpu"), seed=0
        )
        ours = perf_counter() - started
        epoch = seconds_of_epoch(network, dataset, spec)
        resamples = seconds_of_bootstrap(len(dataset.table.rows("test")), spec.evaluate.bootstrap)
    epochs = len(dataset.tasks) * spec.evaluate.probe.epochs
    peer = epochs * epoch + len(dataset.tasks) * resamples
    images = f"{len(dataset.table.split):,} images"
    rows = [
        (f"mtcon-ray, {images}, and the held-out label besides", f"{ours:.1f}", "1"),
        (f"as SupContrast: {epochs} epochs of {epoch:.1f} s", f"{peer:.1f}", f"{peer / ours:.1f}"),
    ]
    return markdown(HEADER, rows)


def seconds_of_epoch(network: Network, dataset: Dataset, spec: RunSpec) -> float:
    """Of one task: train on every training image, then encode val and test."""
    task = dataset.tasks[0]
    network.eval()
    labels = torch.from_numpy(dataset.table.labels[task])
    classifier = nn.Linear(network.encoder.width, dataset.table.size_of(task))
    optimizer = torch.optim.SGD(classifier.parameters(), lr=0.1, momentum=0.9)
    started = perf_counter()
    for split in ("train", "val", "test"):
        rows = dataset.table.rows(split)
        for start in range(0, len(rows), 64):
            some = rows[start : start + 64]
            images = torch.from_numpy(np.asarray(dataset.images[some]))
            with torch.no_grad():
                features = network.encoder(evaluation_views(images, spec.views))
            loss = nn.functional.cross_entropy(classifier(features), labels[some])
            if split == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return perf_counter() - started


def seconds_of_bootstrap(num_items: int, resamples: int) -> float:
    """Accuracy of every resample in turn."""
    correct = np.random.default_rng(0).random(num_items) < 0.7
    generator = np.random.default_rng(1)
    started = perf_counter()
    values = [correct[generator.integers(0, num_items, num_items)].mean() for _ in range(resamples)]
    np.std(values)
    return perf_counter() - started
