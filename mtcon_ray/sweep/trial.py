"""A trial in a worker process: its paths, its event log, its results for Tune."""

import json
import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mtcon_ray.base import metrics, plugins
from mtcon_ray.base.paths import (
    attempt_folder,
    cache_folder,
    checkpoint_folder,
    expanded,
    stop_file,
    trial_log,
)
from mtcon_ray.base.status import Status
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.errors import (
    MemoryTakenError,
    MtconError,
    PreemptedError,
    SpecError,
    TrialError,
    storage_error,
)
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Reported
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.sweep.checkpoint_requests import asked_to_end, heeding_sigterm
from mtcon_ray.sweep.scheduler import BUDGET, OBJECTIVE
from mtcon_ray.tracking.provenance import place_tags
from mtcon_ray.tracking.system_metrics import SystemMetrics
from mtcon_ray.training import checkpoint
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.trainer import Progress, Trainer

# Looking for the stop file on a shared file system at every step would slow down training.
STOP_POLL_SECONDS = 0.5

log = logging.getLogger(__name__)


def common_config(
    spec: RunSpec, sweep: Path, root: Path, places: Mapping[str, str], attempt: int
) -> dict[str, Any]:
    """Returns the part of Tune's configuration shared by all trials of a driver."""
    return {
        # As text: Tune copies the configuration for every trial, and copies share a string.
        "spec": json.dumps(dump_spec(spec)),
        "sweep": str(sweep),
        "root": str(root),
        "places": places,
        "plugins": plugins.allowed_folders(),
        "max_failures": spec.search.max_failures,
        "attempt": attempt,
    }


@dataclass(frozen=True)
class Assignment:
    """A worker's task, read from Tune's configuration."""

    name: str
    spec: RunSpec
    sweep: Path
    root: Path
    places: dict[str, str]
    until: int | None = None  # epoch after which the trial is checkpointed and waits
    attempt: int = 0  # the number of the driver, see `next_attempt`

    @classmethod
    def read(cls, config: dict[str, Any]) -> "Assignment":
        """Reads a Tune configuration: `common` is from the driver, the rest from the searcher."""
        common = config["common"]
        if common["plugins"] is not None:
            plugins.allow(common["plugins"])
        base = parse_spec(json.loads(common["spec"]))
        return cls(
            name=config["trial"],
            spec=base.trial(config["values"], config["repeat"]),
            sweep=Path(common["sweep"]),
            root=Path(common["root"]),
            places=common["places"],
            until=config["until"],
            attempt=common["attempt"],
        )

    @property
    def checkpoints(self) -> Path:
        """Directory of the trial's checkpoints."""
        return checkpoint_folder(self.sweep, self.name)

    @property
    def record(self) -> Path:
        """Path of the trial's event log."""
        return trial_log(self.sweep, self.name)

    def check_driver(self) -> None:
        """Raises PreemptedError if a later driver has begun to give out the sweep's trials.

        A process may outlive its driver, as on a node that was cut off. It must not write into the
        records of a process of the later driver.
        """
        if attempt_folder(self.sweep, self.attempt + 1).exists():
            raise PreemptedError(
                f"{self.name} ends in this process, because a later driver has taken over the "
                f"sweep; driver {self.attempt} started this process"
            )


class StopFile:
    """Callable, True once the driver has asked all trials to checkpoint and end.

    Raises PreemptedError if a later driver has replaced this driver, which ends the training
    without a checkpoint.
    """

    def __init__(self, work: Assignment) -> None:
        self.path = stop_file(work.sweep)
        self._check_driver = work.check_driver
        self._next_look = 0.0
        self._seen = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._seen and now >= self._next_look:
            self._next_look = now + STOP_POLL_SECONDS
            self._check_driver()
            self._seen = self.path.exists()
        return self._seen


def trial_device(gpus: float) -> torch.device:
    """Returns the GPU made visible to this process by Ray, or the CPU."""
    return torch.device("cuda", 0) if gpus and torch.cuda.is_available() else torch.device("cpu")


def check_device(gpus: float, device: torch.device) -> None:
    """Raises TrialError if Ray has counted GPUs on the node but torch finds no GPU."""
    if gpus and device.type == "cpu":
        raise TrialError(
            f"torch finds no GPU on the node, but resources.gpus is {gpus:g}; install a torch for "
            "the GPU driver of that node, or --set resources.gpus=0"
        )


def open_trial_data(work: Assignment) -> Dataset:
    """Opens the trial's data in the cache filled by the driver, without downloads."""
    near = work.spec.storage.node_store
    return open_dataset(
        work.spec.data,
        view_size=work.spec.views.size,
        store=cache_folder(work.root),
        places=work.places,
        node_store=expanded(near) if near else None,
    )


def reports(
    work: Assignment,
    open_data: Callable[[], Dataset],
    *,
    device: torch.device,
    ranks: Ranks = ALONE,
    make_run: Callable[..., Trainer] = Trainer,
) -> Generator[dict[str, Any], None, None]:
    """Trains the trial and yields a Tune result per validation probe and at the end.

    Each epoch is in the event log before its result leaves the process. An error of this package
    ends the trial with the result of `ending`, and the process can train the next trial. With
    several workers the error is raised instead, because the other ranks wait for this rank in a
    collective operation and their group has to be ended.
    """
    end: dict[str, Any] | None = None
    try:
        with heeding_sigterm():
            yield from _train(work, open_data, device, ranks, make_run)
    except Exception as error:
        end = ending(error)
        if end is None or ranks.world > 1:
            raise
    # Not in the `except` block, where the error's traceback keeps the step's tensors alive.
    if end is not None:
        yield end


def ending(error: Exception) -> dict[str, Any] | None:
    """Returns the last Tune result after an error of a trial, or None for an unexpected error.

    An unexpected error ends the process, and Tune starts the trial again in another process.
    PreemptedError and MemoryTakenError do the same: with less memory taken by other processes, the
    same configuration may fit.

    Errors of the configuration or of the node's software fail the trial. All other errors of this
    package, such as a full disk or changed images, would fail every further trial too. Their result
    has the key `halt` with the reason to end the whole sweep. The trial can be resumed.
    """
    if isinstance(error, TrialError | SpecError):
        reason = f"{type(error).__name__.removesuffix('Error')}: {error}"
        return {"outcome": Status.FAILED, "reason": reason, "done": True}
    if isinstance(error, MemoryTakenError | PreemptedError):
        return None
    halt = error if isinstance(error, MtconError) else storage_error(error)
    if halt is None:
        return None
    return {"outcome": Status.INTERRUPTED, "halt": str(halt), "done": True}


def _train(
    work: Assignment,
    open_data: Callable[[], Dataset],
    device: torch.device,
    ranks: Ranks,
    make_run: Callable[..., Trainer],
) -> Generator[dict[str, Any], None, None]:
    check_device(work.spec.resources.gpus, device)
    dataset = open_data()
    spool = EventLog(work.record) if ranks.rank == 0 else None
    epochs = work.spec.train.epochs
    stop_asked = StopFile(work)
    run = make_run(
        work.spec,
        dataset,
        work.checkpoints,
        device=device,
        ranks=ranks,
        should_stop=lambda: stop_asked() or asked_to_end(),
        store=cache_folder(work.root),
        until=work.until,
    )
    damage = run.resume()
    system = SystemMetrics(device) if spool and work.spec.tracking.system_metrics else None
    place: dict[str, str] | None = place_tags(run.place)
    for progress in _from_last(run):
        values = dict(progress.metrics)
        if progress.done and ranks.rank == 0:
            values |= run.report()
        if system:
            values |= system.sample()
        work.check_driver()
        report = Reported(epoch=progress.epoch, metrics=values, tags=place)
        if spool and spool.append(report):
            place = None
        # `report` waits for all ranks.
        if progress.evaluated or progress.done:
            note = {"note": f"{work.name}: {damage}"} if damage else {}
            yield _result(progress, epochs, values) | note
            damage = None
    if run.interrupted:
        if asked_to_end() and not run.at_rung:
            raise PreemptedError(
                "the trial's process got a SIGTERM before the end of its training; the trial is "
                "checkpointed and starts again, up to search.max_failures times"
            )
        yield {"outcome": Status.WAITING if run.at_rung else Status.INTERRUPTED, "done": True}


def record_last(work: Assignment) -> None:
    """Records the last epoch on disk, in case its process ended before it could record it.

    The final epoch of a training is not recorded, because a retry must add its test metrics.
    """
    try:
        state, _, _ = checkpoint.load_newest(work.checkpoints, with_model=False)
        last = None if state is None or state["last"] is None else Progress(**state["last"])
        if last is not None and not last.done:
            EventLog(work.record).append(Reported(epoch=last.epoch, metrics=last.metrics))
    except MtconError as error:  # the trial's own error is to be reported
        log.warning("%s: its last epoch could not be recorded: %s", work.name, error)


def _from_last(run: Trainer) -> Iterator[Progress]:
    """Yields a resumed run's last epoch, then the new epochs.

    The last epoch may be in the checkpoint but not in the event log.
    """
    if run.last is not None:
        yield run.last
    yield from run


def _result(progress: Progress, epochs: int, values: dict[str, float]) -> dict[str, Any]:
    return {
        "epoch": progress.epoch,
        BUDGET: round(100 * progress.epoch / epochs, 6),
        OBJECTIVE: metrics.objective(values),
        # Pairs, not a dict, because Tune keeps statistics of each number in a result of each trial.
        "metrics": list(values.items()),
        "outcome": Status.FINISHED if progress.done else Status.RUNNING,
        "done": progress.done,
    }
