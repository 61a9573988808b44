"""The sweeps and single trainings under a root, for `mtcon-ray list`."""

from pathlib import Path
from typing import Any

from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.paths import list_folders, parent_log, runs_folder, sweeps_folder
from mtcon_ray.base.status import Status
from mtcon_ray.errors import MtconError
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.lookup import load_results
from mtcon_ray.records.results import trial_status


def overviews(root: Path) -> list[dict[str, Any]]:
    """Returns sweeps, then single trainings as a trial each, oldest first, as plain data.

    `value` is the winner's or the best so far. A broken sweep has its error as its state.
    """
    found = []
    for kind, place in (("sweep", sweeps_folder(root)), ("run", runs_folder(root))):
        for folder in list_folders(place):
            try:
                results = load_results(folder)
                state, trials, total = folder_state(folder), results.trials, results.num_trials
                valued = [t for t in trials if t.value is not None]
                best = results.winner or max(valued, key=lambda t: t.value or 0, default=None)
            except (MtconError, OSError) as error:
                state, trials, total, best = f"unreadable: {error}", (), 0, None
            found.append(
                {
                    "name": folder.name,
                    "kind": kind,
                    "state": state,
                    "num_done": sum(t.status.is_final for t in trials),
                    "num_trials": total,
                    "value": best.value if best else None,
                    "params": best.params if best else {},
                    "model_epoch": best.model_epoch if best else None,
                }
            )
    return found


def folder_state(folder: Path) -> str:
    """Returns running, finished, failed, interrupted, or stopped if its process was killed."""
    if is_driven(folder):
        return "running"
    events = EventLog.read(parent_log(folder))
    status = trial_status(events)[0] if events else Status.RUNNING
    return "stopped" if status == Status.RUNNING else status.words


def end_reason(folder: Path) -> str | None:
    """Returns why a sweep ended before all its trials were trained, None if it did not."""
    events = EventLog.read(parent_log(folder))
    return trial_status(events)[1] if events else None
