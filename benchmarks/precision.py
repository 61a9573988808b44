"""Test accuracies of trainings in bfloat16 and in float32 with the same seeds.

A ResNet-18 is trained for six epochs on the photographs at 40 px, as in their sweep. Without
photographs, it is trained on synthetic images. Then the test evaluation runs as in any training.
The spread over seeds shows the difference between two trainings of the same precision.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev, variance
from tempfile import TemporaryDirectory

import torch

from benchmarks.cadence import EXPERIMENTS
from benchmarks.machine import PHOTOS, usable_cores
from benchmarks.table import markdown
from benchmarks.training import opened
from mtcon_ray.base import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.spec.run_spec import RunSpec, load_spec, with_values
from mtcon_ray.training.trainer import Trainer

PRECISIONS = ("float32", "bfloat16")
TEMPERATURE = {"method.temperature": 0.1}
CPU = torch.device("cpu")
HEADER = (
    "test accuracy, mean over seeds (standard deviation)",
    *PRECISIONS,
    "bfloat16 less float32 (standard error)",
    "one bootstrap deviation",
)


def spec_of() -> RunSpec:
    """Returns a training of the photographs' (or synthetic images') sweep with a ResNet-18."""
    if PHOTOS.exists():
        data = (f"data.csv={PHOTOS}/labels.csv", f"data.images={PHOTOS}/images.tar.gz")
        spec = load_spec(EXPERIMENTS / "shoes_temperature.yaml", data)
    else:
        spec = load_spec(EXPERIMENTS / "temperature.yaml")
    changed = {
        "model": {"encoder": {"name": "resnet18"}, "head_dim": 64},
        "train.lr": 0.05,
        "train.epochs": 6,
        "evaluate.every": 6,
    }
    return with_values(spec.trial(TEMPERATURE), changed)


def measure(
    spec: RunSpec | None = None, seeds: Sequence[int] = range(12), device: torch.device = CPU
) -> str:
    """Returns the table. With the photographs it takes an hour and a half on two cores."""
    spec = spec or spec_of()
    found: dict[str, list[dict[str, float]]] = {precision: [] for precision in PRECISIONS}
    with TemporaryDirectory() as folder:
        dataset = opened(spec, Path(folder))
        for seed in seeds:
            for precision in PRECISIONS:
                changes = {
                    "seed": seed,
                    "train.precision": precision,
                    "resources.cpus": usable_cores(),
                }
                chosen = with_values(spec, changes)
                values = trained(chosen, dataset, Path(folder) / f"{precision}-{seed}", device)
                print(f"seed {seed}, {precision}: {values}", flush=True)
                found[precision].append(values)
    return table(found, dataset)


def trained(
    spec: RunSpec, dataset: Dataset, folder: Path, device: torch.device
) -> dict[str, float]:
    """Trains to the end and returns the metrics of the test evaluation."""
    run = Trainer(spec, dataset, folder, device=device)
    for _ in run:
        pass
    return run.report()


def table(found: dict[str, list[dict[str, float]]], dataset: Dataset) -> str:
    """Returns a table with a row per label.

    The standard error treats the seeds of both precisions as independent samples. The last column
    is the mean bootstrap deviation over all trainings.
    """
    rows = []
    labels = [("test", t) for t in dataset.tasks] + [("heldout", t) for t in dataset.held_out]
    for split, label in labels:
        by_precision = [
            [r[metrics.score("classes", split, label)] for r in found[p]] for p in PRECISIONS
        ]
        single, half = map(fmean, by_precision)
        deviations = [
            r[metrics.score_std("classes", split, label)] for p in PRECISIONS for r in found[p]
        ]
        held_out = ", held out" if split == "heldout" else ""
        error = math.sqrt(sum(variance(each) / len(each) for each in by_precision))
        cells = [f"{fmean(each):.3f} ({stdev(each):.3f})" for each in by_precision]
        name = f"{label} ({dataset.table.size_of(label)} classes){held_out}"
        difference = f"{half - single:+.3f} ({error:.3f})"
        rows.append((name, *cells, difference, f"{fmean(deviations):.3f}"))
    return markdown(HEADER, rows)
