"""One trial in a worker process: its folder, its record, its reports to Tune."""

import json
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import torch

from mtcon_ray import metrics
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.errors import MtconError, SpecError, TrialError, storage_error
from mtcon_ray.places import store_folder
from mtcon_ray.run import Progress, Run
from mtcon_ray.spec import RunSpec, parse_spec
from mtcon_ray.sweep.scheduler import BUDGET, OBJECTIVE
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Reported
from mtcon_ray.training.distributed import ALONE, Ranks

# Asking a shared file system for the stop file at every step would be felt.
STOP_POLL_SECONDS = 0.5


class Outcome(StrEnum):
    """Where a trial stands; all but TRAINING and, at a rung, WAITING are ends."""

    TRAINING = "training"
    WAITING = "waiting"
    FINISHED = "finished"
    PRUNED = "pruned"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Assignment:
    """What Tune's config says a worker has to do."""

    name: str
    spec: RunSpec
    sweep: Path
    root: Path
    places: dict[str, str]
    until: int | None = None  # an epoch after which it is saved and waits

    @classmethod
    def read(cls, config: dict[str, Any]) -> "Assignment":
        """From a Tune config: `common` made by the driver, the rest by the searcher."""
        common = config["common"]
        base = parse_spec(json.loads(common["spec"]))
        return cls(
            name=config["trial"],
            spec=base.trial(config["values"], config["repeat"]),
            sweep=Path(common["sweep"]),
            root=Path(common["root"]),
            places=common["places"],
            until=config["until"],
        )

    @property
    def checkpoints(self) -> Path:
        """Folder of the trial's checkpoints."""
        return self.sweep / "checkpoints" / self.name

    @property
    def record(self) -> Path:
        """The trial's spool file."""
        return self.sweep / "spool" / f"{self.name}.jsonl"


class StopFile:
    """Whether the driver has asked every trial to checkpoint and end."""

    def __init__(self, sweep: Path) -> None:
        self.path = stop_path(sweep)
        self._next_look = 0.0
        self._seen = False

    def __call__(self) -> bool:
        now = time.monotonic()
        if not self._seen and now >= self._next_look:
            self._next_look = now + STOP_POLL_SECONDS
            self._seen = self.path.exists()
        return self._seen


def stop_path(sweep: Path) -> Path:
    """The file whose presence asks the sweep's trials to stop."""
    return sweep / "stop"


def trial_device(gpus: float) -> torch.device:
    """The device that Ray left visible to this process, or the CPU."""
    return torch.device("cuda", 0) if gpus and torch.cuda.is_available() else torch.device("cpu")


def check_device(gpus: float, device: torch.device) -> None:
    """Raises TrialError on a CPU where a GPU was asked for: Ray counts them, torch may see none."""
    if gpus and device.type == "cpu":
        raise TrialError(
            f"resources.gpus must be what torch finds on the node, got {gpus:g} where it finds no "
            "GPU; give that node a torch for its driver, or --set resources.gpus=0"
        )


def open_trial_data(work: Assignment) -> Dataset:
    """The trial's data, from the store that the driver has filled; nothing is downloaded."""
    data, near = work.spec.data, work.spec.storage.node_store
    return open_dataset(
        data,
        seed=data.seed,
        view_size=work.spec.views.size,
        store=store_folder(work.root),
        places=work.places,
        node_store=Path(near).expanduser() if near else None,
    )


def reports(
    work: Assignment,
    open_data: Callable[[], Dataset],
    *,
    device: torch.device,
    ranks: Ranks = ALONE,
    make_run: Callable[..., Run] = Run,
) -> Generator[dict[str, Any], None, None]:
    """Train the trial; one Tune result per validation probe and one at the end.

    Epochs are recorded in the spool before the result that speaks of them leaves the process.
    An error of ours ends the trial with the result that `ending` gives, and the process stays
    good for the next. With several workers it is raised: the other ranks wait in an exchange for
    this one, and their group has to be ended.
    """
    end: dict[str, Any] | None = None
    try:
        yield from _train(work, open_data, device, ranks, make_run)
    except Exception as error:
        end = ending(error)
        if end is None or ranks.world > 1:
            raise
    # Outside the `except` block: the error's traceback keeps the step's tensors alive.
    if end is not None:
        yield end


def ending(error: Exception) -> dict[str, Any] | None:
    """Returns the last Tune result of a trial that an error ended; None of an unexpected error.

    Errors of the configuration or of the node's software fail the trial. All other errors of this
    package, such as a full disk or changed images, would meet every further trial too: `halt` is
    then the reason why the whole sweep ends, and the trial can be resumed.
    """
    if isinstance(error, TrialError | SpecError):
        reason = f"{type(error).__name__.removesuffix('Error')}: {error}"
        return {"outcome": Outcome.FAILED, "reason": reason, "done": True}
    halt = error if isinstance(error, MtconError) else storage_error(error)
    if halt is None:
        return None
    return {"outcome": Outcome.INTERRUPTED, "halt": str(halt), "done": True}


def _train(
    work: Assignment,
    open_data: Callable[[], Dataset],
    device: torch.device,
    ranks: Ranks,
    make_run: Callable[..., Run],
) -> Generator[dict[str, Any], None, None]:
    check_device(work.spec.resources.gpus, device)
    dataset = open_data()
    spool = EventLog(work.record) if ranks.rank == 0 else None
    epochs = work.spec.train.epochs
    stop_asked, at_rung = StopFile(work.sweep), False
    run = make_run(
        work.spec,
        dataset,
        work.checkpoints,
        device=device,
        ranks=ranks,
        threads=work.spec.resources.cpus,
        should_stop=lambda: at_rung or stop_asked(),
    )
    damage = f"{work.name}: {run.damage}" if run.damage else None
    for progress in _from_last(run):
        values = dict(progress.metrics)
        if progress.done and ranks.rank == 0:
            values |= run.report()
        if spool:
            spool.append(Reported(epoch=progress.epoch, metrics=values))
        if progress.evaluated or progress.done:
            yield _result(progress, epochs, values) | ({"note": damage} if damage else {})
            damage = None
        at_rung = work.until is not None and progress.epoch >= work.until
    if run.interrupted:
        yield {"outcome": Outcome.WAITING if at_rung else Outcome.INTERRUPTED, "done": True}


def _from_last(run: Run) -> Iterator[Progress]:
    """A resumed run's last epoch again, which may be on disk but not recorded, then the rest."""
    if run.last is not None:
        yield run.last
    yield from run


def _result(progress: Progress, epochs: int, values: dict[str, float]) -> dict[str, Any]:
    return {
        "epoch": progress.epoch,
        BUDGET: round(100 * progress.epoch / epochs, 6),
        OBJECTIVE: metrics.objective(values),
        # Pairs: of each number that Tune finds in a result it keeps statistics for every trial.
        "metrics": list(values.items()),
        "outcome": Outcome.FINISHED if progress.done else Outcome.TRAINING,
        "done": progress.done,
    }
