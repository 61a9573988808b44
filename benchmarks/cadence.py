"""Time of the validation probes as a share of training, at a spec's own cadence.

Epochs of training and probes alternate on the same network. The time of a probe includes the
checkpoint of a new best encoder. The share refers to the spec's whole training. Its numerator is
the first probe, which also makes the views for all later probes, and a probe per `evaluate.every`
epochs after it. Its denominator is all epochs with their checkpoints.
"""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from benchmarks.machine import PHOTOS
from benchmarks.table import markdown
from benchmarks.training import opened
from mtcon_ray.spec.run_spec import RunSpec, load_spec, with_values
from mtcon_ray.training.trainer import Trainer

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
AIM = 0.05
HEADER = (
    f"validation probes (aim: at most {AIM:.0%} of training)",
    "an epoch, s",
    "a probe (the first), s",
    "every",
    "share, median (least to most)",
)


class TimedRun(Trainer):
    """A training that adds up the seconds of its probes and of their checkpoints."""

    probing = 0.0

    def evaluate(self, measure: Callable[..., dict[str, float]]) -> dict[str, float]:
        begin = perf_counter()
        values = super().evaluate(measure)
        self.probing += perf_counter() - begin
        return values

    def _keep(self, epoch: int, value: float) -> None:
        begin = perf_counter()
        super()._keep(epoch, value)
        self.probing += perf_counter() - begin


def specs() -> dict[str, RunSpec]:
    """Returns the shipped sweeps, and a spec with the defaults of `evaluate`, by name.

    Without the photographs only the synthetic data's sweep is returned.
    """
    found = {"temperature.yaml": load_spec(EXPERIMENTS / "temperature.yaml")}
    if PHOTOS.exists():
        data = (f"data.csv={PHOTOS}/labels.csv", f"data.images={PHOTOS}/images.tar.gz")
        shoes = load_spec(EXPERIMENTS / "shoes_temperature.yaml", data)
        found["shoes_temperature.yaml"] = shoes
        plain = {"evaluate": {}, "model": {"encoder": {"name": "small"}, "head_dim": 32}}
        found["the README's spec on these photographs"] = with_values(shoes, plain)
    return found


def measure_spec(spec: RunSpec, folder: Path, rounds: int) -> tuple[str, ...]:
    """Returns a table row without its name."""
    every, num_epochs = spec.evaluate.every, spec.train.epochs
    trial = with_values(spec.trial({}), {"evaluate.every": 1, "train.epochs": rounds + 1})
    run = TimedRun(trial, opened(trial, folder), folder / "run", device=torch.device("cpu"))
    epochs, probes = [], []
    begin = perf_counter()
    for _ in run:
        probes.append(run.probing)
        epochs.append(perf_counter() - begin - run.probing)
        run.probing, begin = 0.0, perf_counter()
    shares = shares_of(epochs, probes, num_epochs, every)
    return (
        f"{median(epochs[1:]):.2f}",
        f"{median(probes[1:]):.2f} ({probes[0]:.2f})",
        str(every),
        f"{median(shares):.1%} ({shares[0]:.1%} to {shares[-1]:.1%})",
    )


def shares_of(
    epochs: Sequence[float], probes: Sequence[float], num_epochs: int, every: int
) -> list[float]:
    """Returns the probes' share of a whole training, an estimate per round, ascending.

    `epochs` and `probes` are seconds. The first epoch is not used (warm-up). The first probe counts
    once in every estimate.
    """
    num_others = ceil(num_epochs / every) - 1
    return sorted(
        (probes[0] + num_others * probe) / (num_epochs * epoch)
        for epoch, probe in zip(epochs[1:], probes[1:], strict=True)
    )


def measure(chosen: Mapping[str, RunSpec] | None = None, rounds: int = 5) -> str:
    """Returns the table. Takes some minutes."""
    rows = []
    for name, spec in (specs() if chosen is None else chosen).items():
        with TemporaryDirectory() as folder:
            rows.append((name, *measure_spec(spec, Path(folder), rounds)))
    return markdown(HEADER, rows)
