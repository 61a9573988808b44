"""A sweep of trials that only follow a formula, so that a whole sweep takes milliseconds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import SPEC_FILE, event_file, sweep_folder
from mtcon_ray.base.root_files import make_folder
from mtcon_ray.base.safe_yaml import dump_yaml
from mtcon_ray.base.status import Status
from mtcon_ray.records.events import Reported
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec, with_scheduler, with_values
from mtcon_ray.sweep.driver import Driver, Task
from mtcon_ray.sweep.record import SweepRecord


class Killed(BaseException):
    """End of the driver's process at any moment."""


def some_spec(epochs: int = 4, changes: dict[str, Any] | None = None, **search: Any) -> RunSpec:
    """Returns a spec that searches the temperature, by default a grid of four values."""
    found = {"space": {"method.temperature": {"grid": [0.1, 0.2, 0.3, 0.4]}}, "sampler": "grid"}
    raw = {"name": "s", "train": {"epochs": epochs}, "search": {**found, **search}}
    return with_scheduler(with_values(parse_spec(raw), changes or {}))


def value(params: dict[str, Any], epoch: int) -> float:
    """Returns an objective that rises with the epochs and has its best temperature at 0.25."""
    return 0.9 - abs(float(params.get("method.temperature", 0.25)) - 0.25) - 0.5 / (epoch + 1)


class Simulation:
    """The folder of the sweep `s-1`, and the checkpoints of its trials: the lines of their epochs.

    `save_every` is the number of epochs between two checkpoints. `at_point` is called between any
    two steps of the executor, and may raise Killed.
    """

    def __init__(
        self, root: Path, spec: RunSpec, *, most: int = 1, save_every: int = 1,
        at_point: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.folder = folder = sweep_folder(root, "s-1")
        self.spec, self.most, self.save_every = spec, most, save_every
        self.at_point = at_point
        self.checkpoints: dict[str, list[str]] = {}
        self.suggested: list[str] = []
        self.running: dict[str, list[str]] = {}  # epochs that are lost with a trial's process
        make_folder(folder)
        (folder / SPEC_FILE).write_text(dump_yaml(dump_spec(spec)))

    def driver(self, callbacks: Callbacks | None = None, **options: Any) -> Driver:
        """Returns a new driver that has begun the sweep, or resumed it as after a kill."""
        record = SweepRecord(self.folder, self.spec)
        record.begin({}, [], [])
        driver = Driver(record, callbacks or Callbacks(), max_concurrent=self.most)
        driver.begin(**options)
        return driver

    def run(self, **options: Any) -> SweepResults:
        """Runs or resumes the sweep to its end."""
        driver = self.driver(**options)
        live: dict[str, Task] = {}
        while not driver.is_over:
            while (task := driver.next()) is not None:
                assert task.trial in event_file(self.folder).read_text(), "its start is recorded"
                live[task.trial] = task
                self.suggested.append(task.trial)
                self.at_point()
            for task in list(live.values()):
                if not self.epoch(driver, task):
                    del live[task.trial]
        driver.finish()
        driver.record.end("FINISHED", None)
        return load_sweep(self.folder)

    def epoch(self, driver: Driver, task: Task) -> bool:
        """Trains an epoch of a trial. Returns False if the trial has ended."""
        name, trial = task.trial, driver.record.trials[task.trial]
        saved = self.checkpoints.setdefault(name, [])
        lines = self.running.setdefault(name, list(saved))
        # Epochs that the log lacks are sent before more is trained.
        if len(lines) <= trial.last_epoch < min(trial.epochs, task.until or trial.epochs):
            lines.append(line(name, len(lines) + 1, value(trial.params, len(lines) + 1)))
        self.at_point()
        number = len(lines)
        done, waits = number == trial.epochs, number == task.until
        if done or waits or number % self.save_every == 0:
            self.checkpoints[name] = list(lines)
        self.at_point()
        goes_on = driver.reported(name, lines[trial.last_epoch :], done=done or waits)
        self.at_point()
        if goes_on and not done and not waits:
            return True
        outcome = Status.FINISHED if done else Status.WAITING if waits else Status.RUNNING
        del self.running[name]
        driver.ended(name, outcome)
        self.at_point()
        return False


def line(trial: str, epoch: int, score: float) -> str:
    """Returns the event of an epoch as a trial sends it."""
    told = {"loss": 1 / epoch, MEAN_ACCURACY: score}
    event = Reported(trial=trial, epoch=epoch, metrics=told, seconds=1.0, time_ms=1000 + epoch)
    return event.to_line()


def lines(trial: str, *scores: float) -> list[str]:
    """Returns the events of a trial's first epochs."""
    return [line(trial, epoch, score) for epoch, score in enumerate(scores, 1)]


def outcomes(results: SweepResults) -> list[Any]:
    """Returns all that a resume must not change."""
    return [(t.name, t.params, t.status, t.seed, t.reports) for t in results.trials]
