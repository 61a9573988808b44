"""Pretended trials of a sweep: their spec, the events of their epochs, and whole records."""

import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

from benchmarks import idle_trial
from mtcon_ray.base import metrics, paths
from mtcon_ray.base.root_files import make_folder
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Event, Reported, Started
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import RunSpec, with_values
from tests.recorded import plan_with

EPOCHS, NUM_METRICS = 10, 30
NAME = "many-1"
SPACE = {
    "method.temperature": {"loguniform": [0.01, 1.0]},
    "train.lr": {"loguniform": [0.001, 1.0]},
}

Rows = list[tuple[str, str, str]]


def alone(way: Callable[..., Rows], *arguments: Any) -> Rows:
    """Runs a function in a new process and returns its rows."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(way, *arguments).result()


def sweep_spec(num_trials: int, **search: Any) -> RunSpec:
    """Returns a sweep of two fields with ASHA and without tracking."""
    changes = {
        "name": "many",
        "train.epochs": EPOCHS,
        "tracking.offline": True,
        "search.space": SPACE,
        **{f"search.{name}": value for name, value in search.items()},
    }
    return with_values(idle_trial.sweep_spec(num_trials), changes)


def line_of(trial: str, epoch: int, random: Random) -> str:
    """Returns the line of an epoch, as a trial sends it."""
    return _report(trial, epoch, random).to_line()


def _report(trial: str, epoch: int, random: Random, num_metrics: int = NUM_METRICS) -> Reported:
    """Returns an epoch with a rising accuracy, and test scores in the last."""
    values = idle_trial.epoch_metrics(epoch)
    values |= {f"metric_{i}": random.random() for i in range(num_metrics - len(values))}
    values[metrics.MEAN_ACCURACY] = 0.5 * (1 - math.exp(-epoch / 3)) + random.random() / 20
    if epoch == EPOCHS:
        values |= {metrics.score("classes", "test", task): 0.5 for task in idle_trial.TASKS}
    now = time.time_ns() // 1_000_000
    return Reported(trial=trial, epoch=epoch, metrics=values, seconds=1.0, time_ms=now)


def plan_of(spec: RunSpec) -> Plan:
    """Returns a made-up plan of a sweep."""
    return plan_with(num_trials=spec.search.num_planned_trials, epochs=EPOCHS)


def write_beginning(folder: Path, spec: RunSpec) -> None:
    """Writes spec and plan into a new folder."""
    make_folder(folder)
    write_beginnings(folder, spec, plan_of(spec))


def record_sweep(folder: Path, num_trials: int, num_metrics: int = NUM_METRICS) -> None:
    """Writes the folder of an ended sweep of finished trials without checkpoints."""
    write_beginning(folder, sweep_spec(num_trials))
    events = events_of(range(num_trials), EPOCHS, num_metrics)
    begun = Started(params={}, tags={"mtcon.sweep": folder.name})
    EventLog(paths.event_file(folder)).append(begun, *events, Ended(status="FINISHED", tags={}))


def events_of(numbers: range, epochs: int, num_metrics: int) -> Iterator[Event]:
    """Yields the events of finished trials."""
    random = Random(numbers.start)
    for number in numbers:
        name = paths.trial_name(number)
        params = {path: 10 ** random.uniform(-2, 0) for path in SPACE}
        tags = {"mtcon.trial": name, "mtcon.epochs": str(epochs), "mtcon.seed": "0"}
        yield Started(trial=name, params=params, tags={**tags, "mtcon.configuration": str(number)})
        for epoch in range(1, epochs + 1):
            yield _report(name, epoch, random, num_metrics)
        yield Ended(trial=name, status="FINISHED", tags={})
