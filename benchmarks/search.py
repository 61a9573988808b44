"""Quality of the winner and epochs saved by early stopping, against training the whole grid.

First a sweep without early stopping trains twelve temperatures to their end with each training
seed. Then each search setting is swept with five search seeds. These sweeps use the real driver and
Ray, but a trial reads its validation scores from the recorded trainings. This is valid because
equal settings give bit-equal trainings. A repeated training checks it.

The loss against the grid's best temperature is given twice. It is measured in the training in which
the temperature was found. The second value is the mean over the other training seeds, which
corresponds to a user's new training with this temperature.

This stage uses the photographs and the synthetic images. `search_curves` makes the same comparison
from stored learning curves.
"""

import json
import math
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from benchmarks import idle_trial
from benchmarks.machine import PHOTOS
from benchmarks.table import markdown
from mtcon_ray.base import metrics
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import cache_folder
from mtcon_ray.cluster import connection
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep import on_ray, run
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.sweep.trial import Assignment, reports, trial_device
from mtcon_ray.training.trainer import Progress, Trainer

TEMPERATURES = (0.02, 0.029, 0.041, 0.058, 0.083, 0.119, 0.169, 0.241, 0.344, 0.491, 0.7, 1.0)
FIELD = "method.temperature"
SEARCH_SEEDS = range(5)
TRAINING_SEEDS = 3
# The settings were fixed before the measurement and not selected by their results.
SETTINGS: dict[str, dict[str, Any]] = {
    "the whole grid": {"sampler": "grid", "scheduler": {"name": "none"}},
    "3 at random": {"num_trials": 3, "scheduler": {"name": "none"}},
    "grid in its order, asha": {"sampler": "grid", "scheduler": {"name": "asha"}},
    "asha": {"scheduler": {"name": "asha"}},
    "asha, tpe": {"sampler": "tpe", "scheduler": {"name": "asha"}},
    "asha, grace 1/9, reduction 3": {"scheduler": {"name": "asha", "grace": 1 / 9, "reduction": 3}},
    "asha, grace 1/16, reduction 4": {
        "scheduler": {"name": "asha", "grace": 1 / 16, "reduction": 4}
    },
    "halving": {"scheduler": {"name": "halving"}},
}

Curves = dict[str, list[float]]  # by temperature, a validation accuracy per epoch


class Found(NamedTuple):
    """Result of one sweep: total epochs trained, and the winner's temperature."""

    epochs: int
    temperature: str


class RecordedRun(idle_trial.IdleRun):
    """Stand-in for a training that reads its validation scores from a recorded training.

    Can be stopped and resumed like a training: the epoch is stored in the trial's folder.
    """

    def __init__(
        self,
        curves: Curves,
        spec: RunSpec,
        dataset: Dataset,
        folder: Path,
        *,
        should_stop: Callable[[], bool],
        until: int | None,
        to_line: Callable[[Progress], str],
        **_: Any,
    ) -> None:
        super().__init__(spec, to_line=to_line)
        self._until = math.inf if until is None else until
        self._curve = curves[str(temperature_of(spec))]
        self._reached = folder / "epoch"
        self._asks = should_stop

    def __iter__(self) -> Iterator[Progress]:
        self._reached.parent.mkdir(parents=True, exist_ok=True)
        done = int(self._reached.read_text()) if self._reached.exists() else 0
        for epoch, value in list(enumerate(self._curve, 1))[done:]:
            if self._asks() or self.at_rung:
                self.interrupted = True
                return
            self._reached.write_text(str(epoch))
            values = {**idle_trial.epoch_metrics(epoch), metrics.MEAN_ACCURACY: value}
            yield self.progress(epoch, values, len(self._curve))

    def report(self) -> dict[str, float]:
        """Returns no test scores: the benchmark compares the last validation score."""
        return {}


class RecordedTrial(ReusedTrainable):
    """The project's trainable with `RecordedRun` instead of a training."""

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        # Read from a file, because trials run in other processes than the benchmark.
        curves = json.loads((work.root / "curves.json").read_text())
        make = partial(RecordedRun, curves)
        device = trial_device(work.spec.resources.gpus)
        return reports(work, device=device, make_run=make)


def temperature_of(spec: RunSpec) -> float:
    """Returns the temperature of a training."""
    return float(spec.method.model_dump()["temperature"])


def grid_spec(*, photos: bool, epochs: int = 18, seeds: int = TRAINING_SEEDS) -> RunSpec:
    """Returns the spec of the grid: small encoder, 24 px, three tasks, a single trial at a time."""
    data: dict[str, Any] = {"kind": "synthetic"}
    if photos:
        data = {
            "kind": "table",
            "csv": str(PHOTOS / "labels.csv"),
            "images": str(PHOTOS / "images.tar.gz"),
            "tasks": ["category", "gender", "colour"],
            "split_column": "split",
        }
    views = {"crop_scale": [0.4, 1.0], "brightness": 0.2, "contrast": 0.2, "hue": 0.02,
             "saturation": 0.2, "grayscale": 0.0}  # fmt: skip
    return parse_spec(
        {
            "name": "search",
            "data": data,
            "views": {"size": 24, **views},
            "model": {"encoder": {"name": "small", "width": 8}, "head_dim": 32},
            "method": {"name": "mtcon", "weighting": "learned", "normalise_weights": True},
            "train": {"epochs": epochs, "warmup_epochs": 1, "batch_size": 64, "lr": 0.2},
            # As in the recorded curves.
            "evaluate": {"short_probe": {"max_items": 1280}},
            "search": {
                "sampler": "grid",
                "space": {FIELD: {"grid": TEMPERATURES}},
                "repeats": seeds,
                "max_concurrent": 1,
                "scheduler": {"name": "none"},
            },
            "tracking": {"offline": True},
        }
    )


def train_grid(spec: RunSpec, root: Path) -> list[Curves]:
    """Trains the grid and returns the validation scores by training seed.

    Asserts bit-equal scores in a repeated training.
    """
    results = run.run_sweep(spec, root=root, callbacks=Callbacks())
    curves = curves_of(results)
    again = spec.trial({FIELD: TEMPERATURES[-1]})
    folder = root / "again"
    data = open_dataset(again.data, view_size=again.views.size, store=cache_folder(root))
    trainer = Trainer(again, data, folder, device=torch.device("cpu"))
    assert [p.metrics[metrics.MEAN_ACCURACY] for p in trainer] == curves[0][str(TEMPERATURES[-1])]
    return curves


def curves_of(results: SweepResults) -> list[Curves]:
    """Returns the validation scores of each epoch by training seed and temperature."""
    found: list[Curves] = [{} for _ in range(results.spec.search.repeats)]
    for trial in results.trials:
        values = [each[metrics.MEAN_ACCURACY] for _, each in trial.reports]
        found[trial.seed - results.spec.seed][str(trial.params[FIELD])] = values
    return found


def sweep(base: RunSpec, setting: dict[str, Any], seed: int, root: Path) -> Found:
    """Runs a sweep over recorded trainings.

    Synchronous halving runs two trials at a time, because its result does not depend on this. The
    other settings run trials in turn, because their results may depend on the order of the reports.
    """
    at_once = 2 if setting["scheduler"]["name"] == "halving" else 1
    search = {
        "sampler": "random",
        "num_trials": len(TEMPERATURES),
        "space": {FIELD: {"choice": TEMPERATURES}},
        "max_concurrent": at_once,
        **setting,
    }
    spec = with_values(base, {"search": search, "seed": seed})
    results = run.run_sweep(spec, root=root, callbacks=Callbacks())
    assert results.winner is not None
    epochs = sum(t.last_epoch for t in results.trials)
    return Found(epochs, str(results.winner.params[FIELD]))


def compare(base: RunSpec, curves: list[Curves], seeds: range = SEARCH_SEEDS) -> str:
    """Returns the table of all settings. Starts a Ray session per training seed."""
    found: dict[str, list[list[Found]]] = {name: [] for name in SETTINGS}
    for recorded in curves:
        with ExitStack() as stack:
            root = stack.enter_context(idle_trial.ray_session())
            stack.enter_context(patch.object(connection, "connected", nullcontext_of_ray))
            stack.enter_context(patch.object(on_ray, "ReusedTrainable", RecordedTrial))
            (root / "curves.json").write_text(json.dumps(recorded))
            for name, setting in SETTINGS.items():
                found[name].append([sweep(base, setting, seed, root) for seed in seeds])
    return table(found, curves, base.data.kind)


def nullcontext_of_ray(*_: Any) -> nullcontext[None]:
    """Replaces `connected` of a sweep, since a Ray session is already running."""
    return nullcontext()


def table(found: dict[str, list[list[Found]]], curves: list[Curves], data: str) -> str:
    """Returns a table with a row per setting: median and extremes over the search seeds."""
    header = [f"{data}, 12 temperatures, 5 search seeds", "share of the epochs"]
    seeds = range(len(curves))
    header += [f"points below the grid's best, training seed {i}" for i in seeds]
    if len(curves) > 1:
        header += [f"found with seed {i}, trained with the others" for i in seeds]
    rows = []
    for name, by_training in found.items():
        whole = sum(map(len, curves[0].values()))
        shares = [each.epochs / whole for sweeps in by_training for each in sweeps]
        cells = [name, _spread(shares, ".1%")]
        for i, sweeps in zip(seeds, by_training, strict=True):
            cells.append(_spread([points_below([curves[i]], s.temperature) for s in sweeps], ".2f"))
        if len(curves) > 1:
            for i, sweeps in zip(seeds, by_training, strict=True):
                others = [curve for j, curve in enumerate(curves) if j != i]
                lost = [points_below(others, s.temperature) for s in sweeps]
                cells.append(_spread(lost, ".2f"))
        rows.append(cells)
    return markdown(header, rows)


def points_below(curves: list[Curves], temperature: str) -> float:
    """Returns the points by which a temperature is below the best temperature.

    A temperature's value is the mean of its last validation scores in `curves`. A point is 1 %.
    """
    ends = {t: fmean(each[t][-1] for each in curves) for t in curves[0]}
    return 100 * (max(ends.values()) - ends[temperature])


def _spread(values: list[float], form: str) -> str:
    low, middle, high = min(values), median(values), max(values)
    middle_text = format(middle, form)
    return middle_text if low == high else f"{middle_text} ({low:{form}} to {high:{form}})"


def measure() -> str:
    """Returns a table per data set. Its grid takes 50 minutes on a core, its sweeps as long."""
    tables = []
    for photos in (True, False) if PHOTOS.exists() else (False,):
        spec = grid_spec(photos=photos)
        with TemporaryDirectory() as folder:
            curves = train_grid(spec, Path(folder))
        tables.append(compare(with_values(spec, {"search.repeats": 1}), curves))
    return "\n\n".join(tables)
