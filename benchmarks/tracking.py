"""Cost of tracking (event log and MLflow) in the default job, experiments/temperature.yaml."""

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, thread_time
from typing import Any
from unittest.mock import patch

from benchmarks.table import markdown
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.spec.run_spec import RunSpec, load_spec
from mtcon_ray.sweep import on_ray, trial
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import take
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.tracking import lifecycle
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.training.trainer import Progress

DEFAULT_JOB = Path(__file__).parent.parent / "experiments" / "temperature.yaml"
TARGET_SHARE = 0.02
SECONDS = "seconds"  # key of a result: seconds of training, and of making events


class TimedStamp(trial.Stamp):
    """Maker of a trial's events that adds up its seconds, over all trials of a process."""

    seconds = 0.0

    def __call__(self, progress: Progress) -> str:
        started = perf_counter()
        line = super().__call__(progress)
        TimedStamp.seconds += perf_counter() - started
        return line


class TimedTrial(ReusedTrainable):
    """The project's trainable, which also reports the seconds of training and of its events."""

    def setup(self, config: dict[str, Any]) -> None:
        # In the trial's process, because a patch in the driver's process has no effect on trials.
        patch.object(trial, "Stamp", TimedStamp).start()
        super().setup(config)

    def step(self) -> dict[str, Any]:
        started, before = perf_counter(), TimedStamp.seconds
        result = super().step()
        events = TimedStamp.seconds - before
        return {**result, SECONDS: (perf_counter() - started - events, events)}


@dataclass
class Costs:
    """Seconds of a sweep, summed over its trials. The sender's seconds are processor time."""

    num_epochs: int = 0
    training: float = 0.0
    events: float = 0.0
    driver: float = 0.0
    sender: float = 0.0
    trials: set[str] = field(default_factory=set)

    def take(self, driver: Driver, name: str, result: dict[str, Any]) -> bool:
        """Passes a result to the driver as `here.take` does, and adds its seconds.

        A trial's last result may come twice. The event log then has its epochs already.
        """
        before, started = driver.record.trials[name].last_epoch, perf_counter()
        goes_on = take(driver, name, result)
        self.driver += perf_counter() - started
        if new := driver.record.trials[name].last_epoch - before:
            training, events = result[SECONDS]
            self.num_epochs += new
            self.training += training
            self.events += events
            self.trials.add(name)
        return goes_on

    @property
    def tracking(self) -> float:
        """Seconds of tracking."""
        return self.events + self.driver + self.sender


class TimedSender(Sender):
    """A sender that measures the processor time of its thread."""

    cpu_seconds = 0.0

    def attempt(self) -> None:
        begin = thread_time()
        super().attempt()
        self.cpu_seconds += thread_time() - begin


def measure_sweep(spec: RunSpec) -> Costs:
    """Runs a sweep to its end and asserts the delivery of all events."""
    senders: list[TimedSender] = []

    def make_sender(*arguments: Any) -> Sender:
        senders.append(TimedSender(*arguments))
        return senders[-1]

    costs = Costs()
    with (
        TemporaryDirectory() as root,
        patch.object(on_ray, "ReusedTrainable", TimedTrial),
        patch.object(on_ray, "take", costs.take),
        patch.object(lifecycle, "Sender", make_sender),
    ):
        run_sweep(spec, root=Path(root), callbacks=Callbacks())
        (sender,) = senders
        assert not sender.pending(), sender.last_error
    costs.sender = sender.cpu_seconds
    return costs


def measure(overrides: tuple[str, ...] = ()) -> str:
    """Returns the table of the default job with `a.b=value` overrides. Takes minutes."""
    costs = measure_sweep(load_spec(DEFAULT_JOB, overrides))
    changes = f" with {', '.join(overrides)}" if overrides else ""
    header = (
        f"{DEFAULT_JOB.name}{changes}: {len(costs.trials)} trials, {costs.num_epochs} epochs",
        "seconds",
        "of training",
    )
    parts = (
        ("training and probes", costs.training),
        ("events in the trials", costs.events),
        ("results in the driver", costs.driver),
        ("sender thread, processor time without importing mlflow", costs.sender),
        (f"tracking in all (target at most {TARGET_SHARE:.0%})", costs.tracking),
    )
    rows = [(name, f"{s:.2f}", f"{s / costs.training:.2%}") for name, s in parts]
    return markdown(header, rows)
