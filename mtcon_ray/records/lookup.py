"""The network of a sweep's winner, by the sweep's name, or a checkpoint's file."""

from pathlib import Path

from mtcon_ray.base import paths
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored import fetch_trials, find_sweep


def find_network(name: str, root: Path) -> tuple[Path, SweepResults | None]:
    """Returns the checkpoint of a sweep's winner, or at a path, and any sweep.

    Raises SweepError for an unknown name, MtconError if a sweep has no winner yet.
    """
    if Path(name).is_file():
        return Path(name), None
    sweep = load_sweep(find_sweep(root, name))
    winner = sweep.required_winner()
    fetch_trials(sweep.folder, [paths.MODEL_FILE, paths.REMOVED_FILE], winner.name)
    return paths.kept_model(sweep.folder_of(winner)), sweep
