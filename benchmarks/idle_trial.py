"""Overhead without training: this project, a plain Tune function, Train inside Tune.

Each trial reports three times, and two trials run at a time. The time runs from the first
suggestion to the end of the last trial, without the start of Ray. The total includes the start of
the first two trials' processes. The seconds per trial exclude it, because they are counted from the
end of the second trial. The alternatives are timed in turns, for several rounds. A second table is
from `waiting`.
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
from mtcon_ray.base import metrics
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.cluster.connection import connected, sweep_environment
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.sweep.trial import Assignment, reports, trial_device
from mtcon_ray.training.trainer import Progress, Trainer

NUM_REPORTS = 3
AT_ONCE = 2
TARGET_SECONDS = 0.5
SWEEP_SIZES = (50, 200)
ROUNDS = 3
# Even numbers: the last trials also run in pairs.
NUM_FUNCTIONS = 6
NUM_TRAINERS = 4
TASKS = ("shape", "colour", "texture")


@dataclass
class Clock:
    """Times of the first suggestion and of each trial's end, in seconds of `perf_counter`."""

    started: float | None = None
    ends: list[float] = field(default_factory=list)

    def start(self) -> None:
        """Records the time of the first suggestion. Later calls are no-ops."""
        if self.started is None:
            self.started = perf_counter()

    def end(self) -> None:
        """Records the end of a trial."""
        self.ends.append(perf_counter())

    @property
    def total(self) -> float:
        """Returns the seconds from the first suggestion to the last end."""
        assert self.started is not None
        return self.ends[-1] - self.started

    @property
    def per_trial(self) -> float:
        """Returns the seconds per trial after the end of the first AT_ONCE trials."""
        return (self.ends[-1] - self.ends[AT_ONCE - 1]) / (len(self.ends) - AT_ONCE)


class IdleRun(Trainer):
    """Stand-in for a training, with the same progress but no work."""

    def __init__(
        self, spec: RunSpec, *_: Any, to_line: Callable[[Progress], str], **__: Any
    ) -> None:
        self.spec = spec
        self.last: Progress | None = None
        self.lines: list[str] = []
        self.interrupted = False
        self._make_line = to_line

    def resume(self) -> str | None:
        """Starts from scratch."""
        return None

    @property
    def place(self) -> dict[str, str]:
        """Returns no device: nothing is trained on one."""
        return {}

    def __iter__(self) -> Iterator[Progress]:
        for epoch in range(1, NUM_REPORTS + 1):
            yield self.progress(epoch, epoch_metrics(epoch), NUM_REPORTS)

    def progress(self, epoch: int, values: dict[str, float], num_epochs: int) -> Progress:
        """Returns the progress of an epoch, and stores its line as a training does."""
        self.last = Progress(epoch, values, True, epoch == num_epochs)
        if not self.last.done:
            self.lines.append(self._make_line(self.last))
        return self.last

    def report(self) -> dict[str, float]:
        """Returns eight numbers: score and deviation of three tasks and a held-out label."""
        labels = [("test", task) for task in TASKS] + [("heldout", "tilt")]
        scores = (metrics.score, metrics.score_std)
        names = [f("classes", *label) for label in labels for f in scores]
        return dict.fromkeys(names, 0.5)


def epoch_metrics(epoch: int) -> dict[str, float]:
    """Returns the 19 metrics of MTCon on three tasks per epoch."""
    names = [metrics.LOSS, metrics.LEARNING_RATE, metrics.IMAGES_PER_SECOND, metrics.MEAN_ACCURACY]
    for task in TASKS:
        names += [metrics.loss(task), metrics.sigma(task), metrics.weight(task)]
        names += [metrics.score("classes", "val", task), metrics.score_std("classes", "val", task)]
    return {name: epoch + i / 100 for i, name in enumerate(names)}


class IdleTrial(ReusedTrainable):
    """The project's trainable with `IdleRun` instead of a training."""

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        device = trial_device(work.spec.resources.gpus)
        return reports(work, device=device, make_run=IdleRun)


class Listener(Callbacks):
    """Callback that records a sweep's times in a `Clock`."""

    def __init__(self) -> None:
        self.clock = Clock()

    def on_suggest(self, trial: str, params: Any) -> None:
        self.clock.start()

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        self.clock.end()


class Timer(Searcher):
    """Tune searcher with empty configurations, which records times as `Listener` does."""

    def __init__(self, num_trials: int) -> None:
        super().__init__(metric="loss", mode="min")
        self.clock = Clock()
        self._left = num_trials

    def suggest(self, trial_id: str) -> Any:
        """Returns an empty configuration, or FINISHED after `num_trials` of them."""
        if not self._left:
            return Searcher.FINISHED
        self._left -= 1
        self.clock.start()
        return {}

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Records the end of a trial."""
        assert not error
        self.clock.end()

    def save(self, checkpoint_path: str) -> None:
        """Does nothing: there is no state to save."""

    def restore(self, checkpoint_path: str) -> None:
        """Does nothing: there is no saved state."""


def sweep_spec(num_trials: int) -> RunSpec:
    """Returns a sweep of `num_trials` temperatures, tracked in SQLite under its root."""
    return parse_spec(
        {
            "name": "idle",
            "data": {"kind": "synthetic", "num_items": 100, "tasks": TASKS},
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
    """Times a whole sweep: driver, suggestions, reused actors, event log and MLflow."""
    listener = Listener()
    with TemporaryDirectory() as folder, patch.object(on_ray, "ReusedTrainable", IdleTrial):
        root = Path(folder)
        results = run_sweep(sweep_spec(num_trials), root=root, callbacks=listener)
        check_tracked(root, num_trials)
    assert len(results.trials) == len(listener.clock.ends) == num_trials
    return listener.clock


def check_tracked(root: Path, num_trials: int) -> None:
    """Asserts that MLflow has each trial's child run, finished, with the metrics of `IdleRun`."""
    for run in check_tracked_runs(root, num_trials):
        assert run.info.status == "FINISHED"
        assert run.data.metrics[metrics.LOSS] == epoch_metrics(NUM_REPORTS)[metrics.LOSS]


def check_tracked_runs(root: Path, num_trials: int) -> list[Any]:
    """Returns the trials' child runs in MLflow. Asserts a single ended run per trial."""
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
    """Times a plain Tune function without tracking, in a process per trial."""
    with ray_session() as root:
        return measure_tune(report_to_tune, num_trials, root)


def measure_trainers(num_trials: int) -> Clock:
    """Times a TorchTrainer with a single worker inside a Tune function, as in Ray's guide."""
    with ray_session() as root:

        def train(config: dict[str, Any]) -> None:
            TorchTrainer(
                report_to_train,
                scaling_config=ray.train.ScalingConfig(num_workers=1),
                run_config=ray.train.RunConfig(
                    name=f"train-{tune.get_context().get_trial_id()}",
                    storage_path=str(root),
                    # mypy sees Train's first version, but the second version runs and takes this.
                    callbacks=[TuneReportCallback()],  # type: ignore[list-item]
                ),
            ).fit()

        # The Tune function only waits for the trainer, so it must not reserve a core.
        return measure_tune(tune.with_resources(train, {"CPU": 0.01}), num_trials, root)


@contextmanager
def ray_session() -> Iterator[Path]:
    """Starts a local Ray in the same way as a sweep does, and yields a temporary folder."""
    with (
        TemporaryDirectory() as folder,
        connected(Path(folder) / "ray.log", sweep_environment(threads=1)),
    ):
        yield Path(folder)


def measure_tune(trainable: Callable[[dict[str, Any]], None], num_trials: int, root: Path) -> Clock:
    """Runs a Tune function `num_trials` times, AT_ONCE at a time, and returns the times."""
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
    """Reports three epochs to Tune without any work."""
    for epoch in range(1, NUM_REPORTS + 1):
        tune.report({**epoch_metrics(epoch), "epoch": epoch})


def report_to_train() -> None:
    """Reports three epochs to Ray Train without any work, on a Train worker."""
    for epoch in range(1, NUM_REPORTS + 1):
        ray.train.report({**epoch_metrics(epoch), "epoch": epoch})


WAYS = (measure_sweep, measure_functions, measure_trainers)


def measure() -> str:
    """Returns the tables of the alternatives and of the time between epochs.

    Takes half an hour.
    """
    ways: dict[str, Callable[[], Clock]] = {
        **{f"mtcon-ray, {n} trials": partial(measure_sweep, n) for n in SWEEP_SIZES},
        f"Tune function, {NUM_FUNCTIONS} trials": partial(measure_functions, NUM_FUNCTIONS),
        f"TorchTrainer in Tune, {NUM_TRAINERS} trials": partial(measure_trainers, NUM_TRAINERS),
    }
    clocks: dict[str, list[Clock]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            clocks[name].append(way())
    times = table(clocks, f"mtcon-ray, {SWEEP_SIZES[-1]} trials")
    from benchmarks.waiting import waiting_table  # imports this module

    return f"{times}\n\n{waiting_table()}"


def table(clocks: dict[str, list[Clock]], ours: str) -> str:
    """Returns a table of medians over rounds, with ratios to the sweep `ours` in each round."""
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
