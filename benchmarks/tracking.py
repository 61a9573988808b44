"""Cost of tracking (event logs and MLflow) in the default job, experiments/temperature.yaml."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest.mock import patch

from benchmarks.table import markdown
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Event
from mtcon_ray.spec.run_spec import RunSpec, load_spec
from mtcon_ray.sweep import driver, trial
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.tracking import lifecycle
from mtcon_ray.tracking.sender import Sender

DEFAULT_JOB = Path(__file__).parent.parent / "experiments" / "temperature.yaml"
TARGET_SHARE = 0.02
# Names under which a trial's process reports its two times together with its metrics.
TRAINING, TRACKING = "benchmark/training_seconds", "benchmark/tracking_seconds"


class TimedSpool(EventLog):
    """An event log that adds up the training thread's seconds for writing.

    The sum is a class attribute, because it covers all event logs of a process.
    """

    seconds = 0.0

    def append(self, event: Event) -> bool:
        started = perf_counter()
        try:
            return super().append(event)
        finally:
            TimedSpool.seconds += perf_counter() - started


class TimedTrial(ReusedTrainable):
    """The project's trainable, which also reports the seconds of training and of event logs."""

    def setup(self, config: dict[str, Any]) -> None:
        # In the trial's process, because a patch in the driver's process has no effect on trials.
        patch.object(trial, "EventLog", TimedSpool).start()
        super().setup(config)

    def step(self) -> dict[str, Any]:
        started, before = perf_counter(), TimedSpool.seconds
        result = super().step()
        tracking = TimedSpool.seconds - before
        spent = perf_counter() - started - tracking
        result["metrics"] += [(TRAINING, spent), (TRACKING, tracking)]
        return result


class Totals(Callbacks):
    """Callback that adds up the reported times of all trials."""

    def __init__(self) -> None:
        self.num_reports = 0
        self.training_seconds = 0.0
        self.tracking_seconds = 0.0

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        self.num_reports += 1
        self.training_seconds += metrics[TRAINING]
        self.tracking_seconds += metrics[TRACKING]


@dataclass(frozen=True)
class Costs:
    """Seconds of a sweep, summed over its trials. The sender's seconds are processor time."""

    num_trials: int
    num_reports: int
    training: float
    on_training_thread: float
    sender: float

    @property
    def share(self) -> float:
        """Returns tracking's seconds as a fraction of training's."""
        return (self.on_training_thread + self.sender) / self.training


def measure_sweep(spec: RunSpec) -> Costs:
    """Runs a sweep to its end and asserts the delivery of all events."""
    senders: list[Sender] = []

    def make_sender(*arguments: Any) -> Sender:
        senders.append(Sender(*arguments))
        return senders[-1]

    totals = Totals()
    with (
        TemporaryDirectory() as root,
        patch.object(driver, "ReusedTrainable", TimedTrial),
        patch.object(lifecycle, "Sender", make_sender),
    ):
        results = driver.run_sweep(spec, root=Path(root), callbacks=totals)
        (sender,) = senders
        assert not sender.pending(), sender.last_error
    return Costs(
        num_trials=len(results.trials),
        num_reports=totals.num_reports,
        training=totals.training_seconds,
        on_training_thread=totals.tracking_seconds,
        sender=sender.cpu_seconds,
    )


def measure(overrides: tuple[str, ...] = ()) -> str:
    """Returns the table of the default job with `a.b=value` overrides. Takes minutes."""
    costs = measure_sweep(load_spec(DEFAULT_JOB, overrides))
    changes = f" with {', '.join(overrides)}" if overrides else ""
    header = (
        f"{DEFAULT_JOB.name}{changes}: {costs.num_trials} trials, {costs.num_reports} reports",
        "seconds",
        "of training",
    )
    parts = (
        ("training and probes", costs.training),
        ("spooling on the training thread", costs.on_training_thread),
        ("sender thread, processor time without importing mlflow", costs.sender),
        (
            f"tracking in all (target at most {TARGET_SHARE:.0%})",
            costs.on_training_thread + costs.sender,
        ),
    )
    rows = [(name, f"{s:.2f}", f"{s / costs.training:.2%}") for name, s in parts]
    return markdown(header, rows)
