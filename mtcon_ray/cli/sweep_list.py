"""The sweeps and single trainings under a root, for `mtcon-ray list`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.errors import MtconError
from mtcon_ray.lock import is_driven
from mtcon_ray.paths import list_folders, parent_log, runs_folder, sweeps_folder
from mtcon_ray.results import SweepResults, load_single, load_sweep, trial_status
from mtcon_ray.status import Status
from mtcon_ray.tracking.event_log import EventLog


@dataclass(frozen=True)
class Overview:
    """A sweep, or a training as one trial; `value` is the winner's or the best so far."""

    name: str
    kind: str
    state: str
    num_done: int
    num_trials: int
    value: float | None
    params: dict[str, Any]
    model_epoch: int | None = None


def overviews(root: Path) -> list[Overview]:
    """Returns sweeps, then single trainings, oldest first; broken ones with their error."""
    found = []
    for kind, place in (("sweep", sweeps_folder(root)), ("run", runs_folder(root))):
        for folder in list_folders(place):
            try:
                results = (load_sweep if kind == "sweep" else load_single)(folder)
                found.append(_overview(folder, kind, results))
            except MtconError as error:
                found.append(Overview(folder.name, kind, f"unreadable: {error}", 0, 0, None, {}))
    return found


def folder_state(folder: Path) -> str:
    """Returns running, finished, failed, interrupted, or stopped if its process was killed."""
    if is_driven(folder):
        return "running"
    events = EventLog.read(parent_log(folder))
    status = trial_status(events)[0] if events else Status.RUNNING
    return "stopped" if status == Status.RUNNING else status.words


def _overview(folder: Path, kind: str, results: SweepResults) -> Overview:
    done = [t for t in results.trials if t.status.is_final]
    valued = [t for t in results.trials if t.value is not None]
    best = results.winner or max(valued, key=lambda t: t.value or 0, default=None)
    return Overview(
        name=folder.name,
        kind=kind,
        state=folder_state(folder),
        num_done=len(done),
        num_trials=results.num_trials,
        value=best.value if best else None,
        params=best.params if best else {},
        model_epoch=best.model_epoch if best else None,
    )
