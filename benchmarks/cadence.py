"""What share of training the validation probes take, at the cadence that a spec asks for.

Interleaved: an epoch of training, then a probe, several times over, on the same network; the
share is a probe's seconds over those of `evaluate.every` epochs of training.
"""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.search import PHOTOS
from benchmarks.table import markdown
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.evaluation import protocol
from mtcon_ray.run import Run
from mtcon_ray.spec import RunSpec, load_spec, with_values

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
AIM = 0.05
HEADER = (
    f"validation probes (aim: at most {AIM:.0%} of training)",
    "an epoch, s",
    "a probe, s",
    "every",
    "share, median (least to most)",
)


class Probes:
    """Stands for `protocol.validate` and adds up what it takes."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._validate = protocol.validate

    def __call__(self, *args: Any, **options: Any) -> dict[str, float]:
        begin = perf_counter()
        values = self._validate(*args, **options)
        self.seconds.append(perf_counter() - begin)
        return values


def specs() -> dict[str, RunSpec]:
    """The sweeps that are shipped, and what a spec that says nothing of evaluation gets."""
    found = {"temperature.yaml": load_spec(EXPERIMENTS / "temperature.yaml")}
    if PHOTOS.exists():
        data = (f"data.csv={PHOTOS}/labels.csv", f"data.images={PHOTOS}/images.tar.gz")
        shoes = load_spec(EXPERIMENTS / "shoes_temperature.yaml", data)
        found["shoes_temperature.yaml"] = shoes
        plain = {"evaluate": {}, "model": {"encoder": {"name": "small"}, "head_dim": 32}}
        found["the README's spec on these photographs"] = with_values(shoes, plain)
    return found


def measure_spec(spec: RunSpec, folder: Path, rounds: int) -> tuple[str, ...]:
    """A row but for its name."""
    every = spec.evaluate.every
    trial = with_values(spec.trial({}), {"evaluate.every": 1, "train.epochs": rounds + 1})
    data = open_dataset(
        trial.data, seed=trial.data.seed, view_size=trial.views.size, store=folder / "store"
    )
    probes, epochs = Probes(), []
    with patch.object(protocol, "validate", probes):
        run = Run(trial, data, folder / "run", device=torch.device("cpu"), threads=1)
        begin = perf_counter()
        for _ in run:
            epochs.append(perf_counter() - begin - probes.seconds[-1])
            begin = perf_counter()
    pairs = sorted(p / (every * e) for p, e in zip(probes.seconds[1:], epochs[1:], strict=True))
    middle = len(pairs) // 2
    return (
        f"{sorted(epochs[1:])[middle]:.2f}",
        f"{sorted(probes.seconds[1:])[middle]:.2f}",
        str(every),
        f"{pairs[middle]:.1%} ({pairs[0]:.1%} to {pairs[-1]:.1%})",
    )


def measure(chosen: Mapping[str, RunSpec] | None = None, rounds: int = 5) -> str:
    """The table. Some minutes."""
    rows = []
    for name, spec in (specs() if chosen is None else chosen).items():
        with TemporaryDirectory() as folder:
            rows.append((name, *measure_spec(spec, Path(folder), rounds)))
    return markdown(HEADER, rows)
