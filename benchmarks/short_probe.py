"""How much of val/accuracy is the encoder's, and how much the order of the probe's minibatches?

One training; after some of its epochs the same features are probed with several orders. "the last
step" is what the probe would be without the mean over its second half.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from benchmarks.search import FIELD, PHOTOS, TEMPERATURES, grid_spec
from benchmarks.table import markdown
from benchmarks.training import opened
from mtcon_ray import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.evaluation import probe, protocol
from mtcon_ray.evaluation.measures import Measurement
from mtcon_ray.run import Run
from mtcon_ray.spec import RunSpec

TEMPERATURE = TEMPERATURES[len(TEMPERATURES) // 2]
HEADER = (
    "val/accuracy of one encoder, % (deviation over orders)",
    "the probe's last step",
    "the mean of its second half",
)


class LastStep(probe.TailMean):
    """In place of the mean."""

    def add(self, weight: Tensor) -> None:
        """Keeps nothing of the steps before."""
        self.value.copy_(weight)


def probed(spec: RunSpec, dataset: Dataset, folder: Path) -> list[Measurement]:
    """What each epoch's probe is trained and scored on."""
    found: list[Measurement] = []

    def kept(*args: Any) -> Measurement:
        found.append(Measurement(*args))
        return found[-1]

    with patch.object(protocol, "Measurement", kept):
        for _ in Run(spec, dataset, folder, device=torch.device("cpu"), threads=1):
            pass
    return found


def accuracies(measured: Measurement, dataset: Dataset, orders: int) -> list[float]:
    """The mean over the tasks by order of the minibatches, in per cent."""
    num_classes = {task: dataset.table.size_of(task) for task in dataset.tasks}
    names = [metrics.score("classes", "val", metrics.slug(task)) for task in dataset.tasks]
    values = []
    for seed in range(orders):
        probes = probe.train_probes(measured.train, num_classes, measured.recipe, seed=seed)
        scores = measured.scores_of(probes)
        values.append(100 * fmean(scores[name] for name in names))
    return values


def measure(
    spec: RunSpec | None = None, epochs: Sequence[int] = (3, 6, 12, 18), orders: int = 12
) -> str:
    """The table; some two minutes."""
    spec = spec or grid_spec(photos=PHOTOS.exists(), seeds=1).trial({FIELD: TEMPERATURE})
    rows = []
    with TemporaryDirectory() as folder:
        dataset = opened(spec, Path(folder))
        measured = probed(spec, dataset, Path(folder) / "run")
        for epoch in epochs:
            with patch.object(probe, "TailMean", LastStep):
                last = accuracies(measured[epoch - 1], dataset, orders)
            mean = accuracies(measured[epoch - 1], dataset, orders)
            cells = [f"{fmean(each):.1f} ({stdev(each):.2f})" for each in (last, mean)]
            rows.append((f"after epoch {epoch}", *cells))
    return markdown(HEADER, rows)
