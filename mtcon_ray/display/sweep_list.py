"""The sweeps under a root, for `mtcon-ray list`."""

from pathlib import Path
from typing import Any

from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.paths import list_folders, sweeps_folder
from mtcon_ray.base.status import Status
from mtcon_ray.errors import MtconError
from mtcon_ray.records.results import SweepResults, load_sweep


def overviews(root: Path) -> list[dict[str, Any]]:
    """Returns the sweeps, oldest first, as plain data.

    `value` is the winner's or the best so far. A broken sweep has its error as its state.
    """
    found = []
    for folder in list_folders(sweeps_folder(root)):
        try:
            results = load_sweep(folder)
            state, trials, total = sweep_state(results), results.trials, results.num_trials
            valued = [t for t in trials if t.value is not None]
            best = results.winner or max(valued, key=lambda t: t.value or 0, default=None)
        except (MtconError, OSError) as error:
            state, trials, total, best = f"unreadable: {error}", (), 0, None
        overview = {
            "name": folder.name,
            "state": state,
            "num_done": sum(t.status.is_final for t in trials),
            "num_trials": total,
            "value": best.value if best else None,
            "params": best.params if best else {},
            "model_epoch": best.model_epoch if best else None,
        }
        found.append(overview)
    return found


def sweep_state(results: SweepResults) -> str:
    """Returns running, finished, failed, interrupted, or stopped if its process was killed."""
    if is_driven(results.folder):
        return "running"
    status, _ = results.status
    return "stopped" if status == Status.RUNNING else status.words
