"""Seconds per trial that does no work: this project's, a plain Tune function, Train inside Tune.

Each trial reports three times; two run at a time. A path's clock runs from the first suggestion to
the end of the last trial, so that starting Ray counts for none. Starting the first two trials'
processes is shown in the total and left out of the seconds per trial: these are counted from the
end of the second trial. Ways are timed in turns, several times over.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

import ray.train
from ray import tune
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from ray.tune.search import ConcurrencyLimiter, Searcher

from benchmarks.table import markdown
from benchmarks.timing import Times, ratio
from mtcon_ray import metrics
from mtcon_ray.cluster.connection import connected, sweep_environment
from mtcon_ray.observer import Observer
from mtcon_ray.run import Progress, Run
from mtcon_ray.spec import RunSpec, parse_spec
from mtcon_ray.sweep import driver
from mtcon_ray.sweep.trial import Assignment, reports, trial_device
from mtcon_ray.sweep.warm import WarmTrial

NUM_REPORTS = 3
AT_ONCE = 2
TARGET_SECONDS = 0.5
SWEEP_SIZES = (50, 200)
ROUNDS = 3
# Always even, so that trials still run in pairs at the end.
NUM_FUNCTIONS = 6
NUM_TRAINERS = 4
TASKS = ("shape", "colour", "texture")


@dataclass
class Clock:
    """When the first trial was suggested and when each ended, seconds."""

    started: float | None = None
    ends: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Note a suggestion; only the first counts."""
        if self.started is None:
            self.started = perf_counter()

    def end(self) -> None:
        """Note the end of a trial."""
        self.ends.append(perf_counter())

    @property
    def total(self) -> float:
        """Seconds from the first suggestion to the last end."""
        assert self.started is not None
        return self.ends[-1] - self.started

    @property
    def per_trial(self) -> float:
        """Seconds per trial once the first AT_ONCE have ended."""
        return (self.ends[-1] - self.ends[AT_ONCE - 1]) / (len(self.ends) - AT_ONCE)


class IdleRun(Run):
    """Stands where a training stands, and yields what one would."""

    def __init__(self, spec: RunSpec, *_: Any, **__: Any) -> None:
        self.spec = spec
        self.last = None
        self.interrupted = False
        self.damage: str | None = None

    def __iter__(self) -> Iterator[Progress]:
        for epoch in range(1, NUM_REPORTS + 1):
            yield Progress(epoch, epoch_metrics(epoch), True, epoch == NUM_REPORTS)

    def report(self) -> dict[str, float]:
        """Eight accuracies and deviations, as of three tasks and a held-out label."""
        labels = [("test", task) for task in TASKS] + [("heldout", "tilt")]
        names = [f(*label) for label in labels for f in (metrics.accuracy, metrics.accuracy_std)]
        return dict.fromkeys(names, 0.5)


def epoch_metrics(epoch: int) -> dict[str, float]:
    """What MTCon on three tasks reports of an epoch: 19 numbers."""
    names = [metrics.LOSS, metrics.LEARNING_RATE, metrics.IMAGES_PER_SECOND, metrics.MEAN_ACCURACY]
    for task in TASKS:
        names += [metrics.loss(task), metrics.sigma(task), metrics.weight(task)]
        names += [metrics.accuracy("val", task), metrics.accuracy_std("val", task)]
    return {name: epoch + i / 100 for i, name in enumerate(names)}


class IdleTrial(WarmTrial):
    """The project's trial with nothing to train."""

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        device = trial_device(work.spec.resources.gpus)
        return reports(work, lambda: self._open(work), device=device, make_run=IdleRun)


class Listener(Observer):
    """Stops the time of a sweep."""

    def __init__(self) -> None:
        self.clock = Clock()

    def on_suggest(self, trial: str, params: Any) -> None:
        self.clock.start()

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        self.clock.end()


class Timer(Searcher):
    """Gives out empty configurations; stops the time where our searcher tells the observer."""

    def __init__(self, num_trials: int) -> None:
        super().__init__(metric="loss", mode="min")
        self.clock = Clock()
        self._left = num_trials

    def suggest(self, trial_id: str) -> Any:
        """An empty configuration, or FINISHED."""
        if not self._left:
            return Searcher.FINISHED
        self._left -= 1
        self.clock.start()
        return {}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Note the end of a trial."""
        assert not error
        self.clock.end()

    def save(self, checkpoint_path: str) -> None:
        """Nothing to keep."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing was kept."""


def sweep_spec(num_trials: int) -> RunSpec:
    """A sweep of `num_trials` temperatures, tracked in SQLite under its root."""
    return parse_spec(
        {
            "name": "idle",
            "data": {"kind": "drawn", "num_items": 100, "tasks": TASKS},
            "views": {"size": 16},
            "train": {"epochs": NUM_REPORTS, "warmup_epochs": 0, "batch_size": 8},
            "evaluate": {"every": 1},
            "search": {
                "space": {"method.temperature": {"loguniform": [0.05, 1.0]}},
                "sampler": "tpe",
                "num_trials": num_trials,
                "max_concurrent": AT_ONCE,
                "scheduler": {"name": "asha"},
            },
        }
    )


def measure_sweep(num_trials: int) -> Clock:
    """This project's warm path: driver, searcher, study, reused actors, spools, MLflow."""
    listener = Listener()
    with TemporaryDirectory() as folder, patch.object(driver, "WarmTrial", IdleTrial):
        root = Path(folder)
        results = driver.run_sweep(sweep_spec(num_trials), root=root, observer=listener)
        check_tracked(root, num_trials)
    assert len(results.trials) == len(listener.clock.ends) == num_trials
    return listener.clock


def check_tracked(root: Path, num_trials: int) -> None:
    """Fail unless MLflow holds each trial's child run, ended, with what an idle run reports."""
    for run in check_tracked_runs(root, num_trials):
        assert run.info.status == "FINISHED"
        assert run.data.metrics[metrics.LOSS] == epoch_metrics(NUM_REPORTS)[metrics.LOSS]


def check_tracked_runs(root: Path, num_trials: int) -> list[Any]:
    """The trials' child runs in MLflow; fails unless there is one of each, ended."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    experiment = client.get_experiment_by_name("mtcon-ray")
    assert experiment is not None
    where = [experiment.experiment_id], "tags.`mtcon.trial` != ''"
    runs = client.search_runs(*where, max_results=10_000)
    assert len(runs) == num_trials
    assert all(run.info.status in ("FINISHED", "KILLED") for run in runs)
    return list(runs)


def measure_functions(num_trials: int) -> Clock:
    """A plain Tune function, each trial in a process of its own, nothing tracked."""
    with ray_session() as root:
        return measure_tune(report_to_tune, num_trials, root)


def measure_trainers(num_trials: int) -> Clock:
    """TorchTrainer with one worker inside a Tune function, as Ray's guide shows it."""
    with ray_session() as root:

        def train(config: dict[str, Any]) -> None:
            TorchTrainer(
                report_to_train,
                scaling_config=ray.train.ScalingConfig(num_workers=1),
                run_config=ray.train.RunConfig(
                    name=f"train-{tune.get_context().get_trial_id()}",
                    storage_path=str(root),
                    callbacks=[TuneReportCallback()],  # type: ignore[list-item]
                ),
            ).fit()

        # The process that waits for the trainer shall not take a core from it.
        return measure_tune(tune.with_resources(train, {"CPU": 0.01}), num_trials, root)


@contextmanager
def ray_session() -> Iterator[Path]:
    """A local Ray set up as a sweep sets it up, and a folder."""
    with (
        TemporaryDirectory() as folder,
        connected(Path(folder) / "ray.log", sweep_environment(threads=1)),
    ):
        yield Path(folder)


def measure_tune(trainable: Callable[[dict[str, Any]], None], num_trials: int, root: Path) -> Clock:
    """Run a Tune function `num_trials` times, AT_ONCE at a time."""
    timer = Timer(num_trials)
    tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(
            search_alg=ConcurrencyLimiter(timer, max_concurrent=AT_ONCE), num_samples=-1
        ),
        run_config=tune.RunConfig(name="tune", storage_path=str(root), verbose=0),
    ).fit()
    assert len(timer.clock.ends) == num_trials
    return timer.clock


def report_to_tune(config: dict[str, Any]) -> None:
    """A trial that does nothing."""
    for epoch in range(1, NUM_REPORTS + 1):
        tune.report({**epoch_metrics(epoch), "epoch": epoch})


def report_to_train() -> None:
    """What a Train worker of such a trial does."""
    for epoch in range(1, NUM_REPORTS + 1):
        ray.train.report({**epoch_metrics(epoch), "epoch": epoch})


def measure() -> str:
    """The table of all three. A quarter of an hour."""
    ways: dict[str, Callable[[], Clock]] = {
        **{f"mtcon-ray, {n} trials": partial(measure_sweep, n) for n in SWEEP_SIZES},
        f"Tune function, {NUM_FUNCTIONS} trials": partial(measure_functions, NUM_FUNCTIONS),
        f"TorchTrainer in Tune, {NUM_TRAINERS} trials": partial(measure_trainers, NUM_TRAINERS),
    }
    clocks: dict[str, list[Clock]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            clocks[name].append(way())
    return table(clocks, f"mtcon-ray, {SWEEP_SIZES[-1]} trials")


def table(clocks: dict[str, list[Clock]], ours: str) -> str:
    """Medians of the rounds; ratios are those of each round to ours, the longest sweep."""
    times = {name: Times(tuple(c.per_trial for c in each)) for name, each in clocks.items()}
    rows = [
        (
            name,
            f"{each.median:.2f}",
            "1" if name == ours else str(ratio(each, times[ours])),
            f"{median(c.total for c in clocks[name]):.1f}",
        )
        for name, each in times.items()
    ]
    header = (
        f"Trials without work (target at most {TARGET_SECONDS} s)",
        "s per trial",
        "times ours",
        "s in all, with start-up",
    )
    return markdown(header, rows)
