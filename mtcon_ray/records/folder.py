"""The folder of a sweep or a single training: its name, its spec, and the lock of its driver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcon_ray.base.lock import FILE, driver_lock, is_driven
from mtcon_ray.base.paths import (
    SPEC_FILE,
    checked_name,
    last_name,
    list_folders,
    namesake,
    new_name,
    parent_log,
)
from mtcon_ray.base.root_files import make_folder, remove_folder
from mtcon_ray.data.disk import partial_of
from mtcon_ray.errors import SweepError, nearest
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Started
from mtcon_ray.records.recorded import check_evaluation, load_recorded
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_scheduler
from mtcon_ray.training.checkpoint import differences

# A folder holds only these files before its spec is written, even after a kill in between.
BEFORE_BEGIN = (FILE, "log", partial_of(Path(SPEC_FILE)).name)
# The tag with the name in the first event of a folder, by the kind of folder.
NAME_TAGS = {"sweep": "mtcon.sweep", "run": "mtcon.run"}
# Fields that may differ on resume. search.num_trials may also grow.
FREE_ON_RESUME = (
    "resources",
    "tracking",
    "storage",
    "search.max_concurrent",
    "search.max_failures",
    "search.stall_minutes",
    "search.max_hours",
    "search.max_device_hours",
)


def choose_folder(
    among: Path, spec: RunSpec, name: str | None, resume: bool, way_on: Callable[[str], str]
) -> Path:
    """Returns the folder in `among`, which does not exist yet unless it is resumed.

    `way_on` returns the command to resume a folder by its name. Raises SweepError if a new name
    is taken by a sweep or a training. Raises SweepError if a resumed folder does not exist, began
    under another name, or has another spec, and for records without a spec.
    """
    kind = among.name.removesuffix("s")
    if name is None:
        name = last_name(among, spec.name) if resume else new_name(among.parent, spec.name)
    folder = among / checked_name(name)
    is_there = (folder / SPEC_FILE).exists()
    if _has_begun(folder) and not is_there:
        raise SweepError(
            f"{kind} {name!r} cannot continue: {folder} has records but no {SPEC_FILE}; restore "
            f"that file, remove all with `mtcon-ray clean {among.name}/{name} --yes`, or give "
            "another --name"
        )
    if not resume:
        if is_there:
            raise SweepError(
                f"{kind} {name!r} exists already under {among}; to continue it: {way_on(name)}; "
                "for a new one: give another --name"
            )
        _check_namesake(folder)
        return folder
    if not is_there and folder.exists():
        raise SweepError(
            f"{kind} {name!r} under {among} has not begun, so there is nothing to resume; "
            "repeat the command without --resume"
        )
    if not is_there:
        known = [entry.name for entry in list_folders(among)]
        raise SweepError(f"no {kind} {name!r} under {among} to resume{nearest(name, known)}")
    _check_name(folder, kind)
    check_evaluation(folder)
    _check_resumable(load_recorded(folder / SPEC_FILE), spec)
    return folder


def _check_namesake(folder: Path) -> None:
    """Raises SweepError if a sweep and a training share a name. Ignores killed starts."""
    other = namesake(folder)
    if other and (_has_begun(other) or is_driven(other)):
        raise SweepError(
            f"{other} exists already, and a sweep and a training must have different names; give "
            "another --name"
        )


def _check_name(folder: Path, kind: str) -> None:
    """Raises SweepError if the records were begun under another name.

    Runs in MLflow are found by the first event of a folder's records, so a copy and its original
    would write to the same runs.
    """
    begun = next(iter(EventLog.read(parent_log(folder))), None)
    tags = begun.tags if isinstance(begun, Started) else {}
    name = tags.get(NAME_TAGS[kind], folder.name)
    if name != folder.name:
        raise SweepError(
            f"{kind} {folder.name!r} was begun as {name!r} and would write to the runs of {name!r} "
            f"in MLflow; rename the folder to {name}, or start a new {kind} with another --name. "
            f"If {name} exists too, move the folder below another --root with another tracking.uri"
        )


def _check_resumable(stored: RunSpec, given: RunSpec) -> None:
    """Raises SweepError with all fields that must not differ but do."""
    free: tuple[str, ...] = FREE_ON_RESUME
    if given.search.num_configurations >= stored.search.num_configurations:
        free += ("search.num_trials",)
    if changed := changes(stored, given, free):
        raise SweepError(
            "cannot resume with another spec. Only resources, tracking, storage and the limits of "
            "search may change, and search.num_trials may grow. These values differ:\n  "
            + "\n  ".join(changed)
            + "\n"
            "give the spec of the start (--set PATH=VALUE sets single fields), or start again "
            "with another --name"
        )


def changes(stored: RunSpec, given: RunSpec, free: tuple[str, ...] = FREE_ON_RESUME) -> list[str]:
    """Returns the different fields with both values, except fields that begin as in `free`."""
    before, after = dump_spec(with_scheduler(stored)), dump_spec(with_scheduler(given, stored))
    return [
        f"{path}: {old!r} then, {new!r} now"
        for path, old, new in differences(before, after)
        if not path.startswith(free)
    ]


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes the folder if it is new, and holds the lock of its only driver.

    Afterwards removes the folder if nothing has started in it, to let the user repeat the command.
    Raises SweepError as `choose_folder` does for a new name.
    """
    make_folder(folder)
    with driver_lock(folder):
        try:
            if not _has_begun(folder):  # another start may have come meanwhile
                _check_namesake(folder)
            yield
        finally:
            if not _has_begun(folder):
                remove_folder(folder, ignore_errors=True)
                with suppress(OSError):  # it has other sweeps
                    folder.parent.rmdir()


def _has_begun(folder: Path) -> bool:
    """Returns True if a folder holds more than a failed or killed start leaves behind."""
    return folder.exists() and any(e.name not in BEFORE_BEGIN for e in folder.iterdir())
