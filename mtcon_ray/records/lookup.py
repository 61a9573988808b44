"""Results and networks of sweeps and single trainings, by name or folder."""

from pathlib import Path

from mtcon_ray.base import paths
from mtcon_ray.records.results import SweepResults, load_single, load_sweep


def load_results(folder: Path) -> SweepResults:
    """Returns a sweep, or a training as a sweep with a single trial. Raises SweepError for none."""
    is_sweep = folder.parent.name == paths.sweeps_folder(Path()).name
    return load_sweep(folder) if is_sweep else load_single(folder)


def find_network(name: str, root: Path) -> tuple[Path, SweepResults | None]:
    """Returns the checkpoint of a sweep's winner, of a training, or at a path, and any sweep.

    Raises SweepError for an unknown name, MtconError if a sweep has no winner yet.
    """
    if Path(name).is_file():
        return Path(name), None
    folder = paths.find_folder(root, name)
    if folder.parent != paths.sweeps_folder(root):
        return paths.kept_model(folder), None
    sweep = load_sweep(folder)
    winner = paths.checkpoint_folder(folder, sweep.required_winner().name)
    return paths.kept_model(winner), sweep
