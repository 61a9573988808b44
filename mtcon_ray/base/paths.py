"""Paths of all written files, under one absolute root.

<root>/sweeps/<name>/        a sweep; a training is a sweep of one trial
<root>/comparisons/<name>/   the tables of a comparison
<root>/store/                decoded images
<root>/mlflow.db, mlartifacts/   the default tracking store

A root in an object store has a local root on each machine, <storage.local>/roots/<quoted URL>,
with copies of what the machine needs, and in addition
<root>/running/              files of running trials
<root>/seen/                 what commands have read last
"""

import os
import re
from collections.abc import Collection
from errno import EPERM
from itertools import count, pairwise
from pathlib import Path
from stat import S_ISREG
from urllib.parse import quote, unquote

from mtcon_ray.base.registry import STORES, URL, checked_url, expanded
from mtcon_ray.base.root_files import SWEEPS, TOP, check_no_links
from mtcon_ray.errors import ResourceError, SweepError, UserError, nearest

DEFAULT_ROOT = Path("~/mtcon-ray")
DEFAULT_LOCAL = "~/.cache/mtcon-ray"
ROOTS, SEEN = "roots", "seen"
TRIAL = re.compile(r"trial-[0-9]+")
# Names become folders, MLflow run names and parts of commands.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
SPEC_FILE = "spec.yaml"
PLAN_FILE = "plan.json"
PREDICTIONS_FILE = "predictions.npz"
MODEL_FILE, LAST_FILE, PREVIOUS_FILE = "model.pt", "last.pt", "last.previous.pt"
CARD_FILE = "model.json"  # of an exported folder
SENT_FILE = "sent.json"
REPORT_PAGE = Path("report", "index.html")
TUNE_FOLDER = "tune"
RAY_LOG = Path("log", "ray.log")
MLFLOW_DATABASE = "mlflow.db"
MLFLOW_ARTIFACTS = "mlartifacts"
# Stands in place of a network removed by `storage.keep`.
REMOVED_FILE = "removed.txt"


def choose_root(chosen: str | None, local: str | None = None) -> Path:
    """Returns the absolute root: `chosen`, or ~/mtcon-ray with None or "".

    For a URL it returns this machine's root below `local`, by default ~/.cache/mtcon-ray. Raises
    UserError for a URL of another form.
    """
    if not chosen or not URL.match(str(chosen)):
        return expanded(chosen or DEFAULT_ROOT).absolute()
    try:
        quoted = _quoted(checked_url(chosen.rstrip("/") + "/").rstrip("/"))
    except ValueError as error:
        raise UserError(f"a root that is no folder {error}") from None
    return expanded(local or DEFAULT_LOCAL).absolute() / ROOTS / quoted


def _quoted(url: str) -> str:
    """Returns the name of a folder for a URL.

    >>> _quoted("s3://bucket/shoe lab")
    's3+bucket+shoe%20lab'
    """
    return quote(url, safe="/").replace("%3A//", "/").replace("/", "+")


def stored_url(path: Path) -> str | None:
    """Returns the URL of a path below the local root of an object store, None for other paths."""
    parts = path.parts
    for at, (above, name) in enumerate(pairwise(parts), 2):
        url = unquote(name.replace("+", "://", 1).replace("+", "/"))
        if above == ROOTS and url.startswith(tuple(STORES)) and _quoted(url) == name:
            below = parts[at:]
            return "/".join([url, *below[below[:1] == (SEEN,) :]])
    return None


def shown(path: Path) -> str:
    """Returns a path of the root for commands and messages: its URL, or the path itself."""
    return stored_url(path) or str(path)


def prepare_root(root: Path) -> None:
    """Creates the root, readable by its owner only. Raises ResourceError if it is not writable.

    The permissions of an existing root stay as they are, because a team may share it.
    """
    try:
        if stored_url(root):
            root.parents[1].mkdir(mode=0o700, parents=True, exist_ok=True)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = root / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
        if stored_url(root) and (root.stat().st_uid != os.getuid() or root.stat().st_mode & 0o022):
            # Others could replace data and networks, which are read as this user's own.
            raise PermissionError(EPERM, "another user owns it or may write to it")
    except OSError as error:
        raise ResourceError(
            f"the root must be a folder that can be written, got {root} ({error.strerror}); "
            "name another with --root or storage.root"
        ) from None


def sweep_folder(root: Path, name: str) -> Path:
    """Returns the folder of a sweep. Raises SweepError if the name does not match NAME."""
    return root / SWEEPS / checked_name(name)


def comparison_folder(root: Path, name: str) -> Path:
    """Returns the folder of a comparison's tables and figures. Its trainings are sweeps."""
    return root / "comparisons" / checked_name(name)


def cache_folder(root: Path) -> Path:
    """Returns the image store: decoded images and downloads, shared by all sweeps."""
    return root / "store"


def event_file(folder: Path) -> Path:
    """Returns the event log of a sweep."""
    return folder / "events.jsonl"


def trial_name(number: int) -> str:
    """Returns the name of the sweep's trial of this number, from 0."""
    return f"trial-{number:04d}"


def trial_number(name: str) -> int:
    """Returns the number of the trial of this name."""
    return int(name.removeprefix("trial-"))


def is_trial(name: str) -> bool:
    """Returns True for the names of sweeps' trials."""
    return TRIAL.fullmatch(name) is not None


def checkpoint_folder(folder: Path, trial: str) -> Path:
    """Returns a trial's folder: model.pt, predictions.npz and, until it ends, checkpoints."""
    return folder / "checkpoints" / trial


def list_trials(folder: Path) -> list[Path]:
    """Returns the existing folders of a sweep's trials, by name."""
    return sorted(place for place in folder.glob("checkpoints/trial-*") if is_trial(place.name))


def attempt_folder(folder: Path, number: int) -> Path:
    """Returns Tune's working folder of a sweep's driver, by the driver's number from 0."""
    return folder / TUNE_FOLDER / f"attempt-{number}"


def next_attempt(folder: Path) -> int:
    """Returns the number of the next driver of a sweep: 1 above the largest with a folder.

    Raises SweepError if the folder for Tune's files is a link.
    """
    check_no_links(folder / TUNE_FOLDER)
    return 1 + max(_numbers(folder / TUNE_FOLDER, "attempt"), default=-1)


def new_name(root: Path, stem: str, taken: Collection[str] = ()) -> str:
    """Returns the first `<stem>-<n>` that is not taken, above all sweeps of this stem."""
    first = max(_numbers(root / SWEEPS, stem), default=0) + 1
    return next(name for n in count(first) if (name := f"{stem}-{n}") not in taken)


def last_name(root: Path, stem: str) -> str:
    """Returns the sweep `<stem>-<n>` with the largest n. Raises SweepError if none exists."""
    folder = root / SWEEPS
    numbers = _numbers(folder, stem)
    if not numbers:
        raise SweepError(
            f"nothing to resume: {folder} has no {stem}-<n>; start without --resume, or give the "
            "name to resume with --name"
        )
    return f"{stem}-{max(numbers)}"


def find_folder(root: Path, name: str) -> Path:
    """Returns the folder of the sweep of this name.

    Raises SweepError if it does not exist, with similar names.
    """
    if (folder := sweep_folder(root, name)).is_dir():
        return folder
    known = [entry.name for entry in list_folders(root)]
    raise SweepError(f"no sweep {name!r} under {root}{nearest(name, known)}")


def checked_name(name: str) -> str:
    """Returns the name, which becomes part of a path.

    Raises SweepError unless it matches NAME, and for the names by which `root_files` finds the root
    of a path.
    """
    if name in TOP or not NAME.fullmatch(name):
        raise SweepError(
            "a name must be lower case letters, digits, '.', '_' and '-', beginning with a letter "
            f"or digit, and none of {', '.join(TOP)}, which are folders of the root, got {name!r}; "
            "rename an existing folder of this name"
        )
    return name


def list_folders(root: Path) -> list[Path]:
    """Returns the folders of the sweeps under a root, oldest first.

    A folder counts if it has a recorded spec. The spec's modification time gives the order.
    """
    entries = (root / SWEEPS).glob("*")
    found = {e: t for e in entries if NAME.fullmatch(e.name) and (t := _spec_time(e)) is not None}
    return sorted(found, key=lambda e: (found[e], e.name))


def _spec_time(folder: Path) -> float | None:
    try:
        spec = (folder / SPEC_FILE).stat()
        return spec.st_mtime if S_ISREG(spec.st_mode) else None
    except PermissionError:  # another user's sweep, which cannot be read
        return folder.stat().st_mtime
    except OSError:
        return None


def _numbers(folder: Path, stem: str) -> list[int]:
    """Returns the number of each `<stem>-<n>` in a folder."""
    matches = (re.fullmatch(rf"{re.escape(stem)}-(0|[1-9]\d*)", e.name) for e in folder.glob("*"))
    return [int(match[1]) for match in matches if match]
