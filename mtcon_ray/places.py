"""Where everything is written: one absolute root, and below it nothing but these paths.

<root>/sweeps/<name>/   a sweep        <root>/mlflow.db, mlartifacts/   the default tracking store
<root>/runs/<name>/     one training   <root>/store/                    decoded images
"""

import re
from pathlib import Path

from mtcon_ray.errors import SweepError, nearest

DEFAULT_ROOT = Path("~/mtcon-ray")
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SPEC_FILE = "spec.yaml"
PLAN_FILE = "plan.json"
PREDICTIONS_FILE = "predictions.npz"


def choose_root(chosen: str | None) -> Path:
    """The absolute root: the one chosen, or ~/mtcon-ray."""
    return (Path(chosen) if chosen else DEFAULT_ROOT).expanduser().absolute()


def sweeps_folder(root: Path) -> Path:
    """Holds one folder per sweep."""
    return root / "sweeps"


def sweep_folder(root: Path, name: str) -> Path:
    """Everything of one sweep. Raises SweepError for a name that is no plain folder name."""
    return sweeps_folder(root) / _checked(name)


def runs_folder(root: Path) -> Path:
    """Holds one folder per single training."""
    return root / "runs"


def run_folder(root: Path, name: str) -> Path:
    """Everything of one single training. Raises SweepError as `sweep_folder`."""
    return runs_folder(root) / _checked(name)


def store_folder(root: Path) -> Path:
    """Decoded images and downloaded data, shared by all sweeps and keyed by content."""
    return root / "store"


def mlflow_database(root: Path) -> Path:
    """SQLite file of the default tracking store."""
    return root / "mlflow.db"


def mlflow_artifacts(root: Path) -> Path:
    """Artifacts of the default tracking store."""
    return root / "mlartifacts"


def spool_folder(folder: Path) -> Path:
    """Records of a sweep's or run's events, one file per tracked run."""
    return folder / "spool"


def checkpoint_folder(folder: Path, trial: str) -> Path:
    """`model.pt` and `predictions.npz` of one trial; until it has ended what it resumes from."""
    return folder / "checkpoints" / trial


def log_folder(folder: Path) -> Path:
    """What Ray and the trials print, and traces of what went wrong."""
    return folder / "log"


def new_name(folder: Path, stem: str) -> str:
    """`<stem>-<n>`, n one above the highest of that stem in a folder of sweeps or runs."""
    return f"{stem}-{max(_numbers(folder, stem), default=0) + 1}"


def last_name(folder: Path, stem: str) -> str:
    """The newest `<stem>-<n>` in a folder of sweeps or runs. Raises SweepError if there is none."""
    numbers = _numbers(folder, stem)
    if not numbers:
        raise SweepError(
            f"--resume must find a {stem}-<n> to go on with, got none in {folder}; "
            "start without --resume, or name one with --name"
        )
    return f"{stem}-{max(numbers)}"


def find_folder(root: Path, name: str) -> Path:
    """The folder of a sweep, else of a single training; `runs/<name>` says which.

    Raises SweepError with the nearest names.
    """
    kind, slash, rest = name.partition("/")
    kinds = {"sweeps": sweeps_folder(root), "runs": runs_folder(root)}
    places = [kinds[kind]] if slash and kind in kinds else list(kinds.values())
    plain = _checked(rest if slash and kind in kinds else name)
    for place in places:
        if (place / plain).is_dir():
            return place / plain
    known = [entry.name for place in places for entry in list_folders(place)]
    raise SweepError(f"no sweep or run {plain!r} under {root}{nearest(plain, known)}")


def list_folders(folder: Path) -> list[Path]:
    """The sweeps or runs in their folder, oldest first."""
    entries = folder.iterdir() if folder.is_dir() else ()
    named = [e for e in entries if NAME.fullmatch(e.name) and (e / SPEC_FILE).is_file()]
    return sorted(named, key=lambda e: ((e / SPEC_FILE).stat().st_mtime, e.name))


def _numbers(folder: Path, stem: str) -> list[int]:
    entries = folder.iterdir() if folder.is_dir() else ()
    matches = (re.fullmatch(rf"{re.escape(stem)}-([1-9]\d*)", e.name) for e in entries)
    return [int(match[1]) for match in matches if match]


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise SweepError(
            "a name must be lower case letters, digits, '.', '_' and '-', beginning with a letter "
            f"or digit, got {name!r}"
        )
    return name
