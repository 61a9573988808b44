"""The folder of a sweep: its name, its spec, and the lock of its driver."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shlex import quote

from mtcon_ray.base import paths
from mtcon_ray.base.lock import FILE, driver_lock
from mtcon_ray.base.root_files import make_folder, remove_folder
from mtcon_ray.data.disk import partial_of
from mtcon_ray.errors import SweepError, nearest
from mtcon_ray.records.recorded import check_evaluation, load_recorded
from mtcon_ray.records.results import first_tags
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_scheduler
from mtcon_ray.spec.search import LIMITS, SearchSpec
from mtcon_ray.training.checkpoint import differences

# A folder holds only these files before its spec is written, even after a kill in between.
BEFORE_BEGIN = (FILE, "log", "weights", partial_of(Path(paths.SPEC_FILE)).name)
# Fields that may differ on resume. search.num_trials may also grow.
_LIMITS = tuple(f"search.{name}" for name in LIMITS)
FREE_ON_RESUME = ("resources", "tracking", "storage", "evaluate.test", *_LIMITS)


def check_folder(folder: Path, spec: RunSpec, *, resume: bool, hint: Callable[[Path], str]) -> None:
    """Checks that a sweep can begin in a folder, or be resumed there.

    `hint` returns the command to resume the sweep in a folder. Raises SweepError if a new name is
    taken. Raises SweepError if a resumed folder does not exist, began under another name, or has
    another spec, and for records without a spec.
    """
    name, among, is_there = folder.name, folder.parent, (folder / paths.SPEC_FILE).exists()
    if lacking := _lacking(folder):
        clean = f"mtcon-ray clean {name} --root {quote(paths.shown(folder.parents[1]))} --yes"
        raise SweepError(
            f"sweep {name!r} cannot continue: {folder} has records but no {lacking}; restore that "
            f"file, remove all with `{clean}`, or give another --name"
        )
    if not resume:
        if is_there:
            taken = f"sweep {name!r} exists already under {among}; to continue it: {hint(folder)}"
            raise SweepError(f"{taken}; for a new one: give another --name")
        return
    if not is_there:
        known = [entry.name for entry in paths.list_folders(among.parent)]
        raise SweepError(f"no sweep {name!r} under {among} to resume{nearest(name, known)}")
    # Runs in MLflow are found by the first event of a folder's records, so a copy and its original
    # would write to the same runs.
    if (begun := first_tags(folder).get("mtcon.sweep", name)) != name:
        raise SweepError(
            f"sweep {name!r} was begun as {begun!r} and would write to the runs of {begun!r} in "
            f"MLflow; rename the folder to {begun}, or start a new sweep with another --name. If "
            f"{begun} exists too, move the folder below another --root with another tracking.uri"
        )
    check_evaluation(folder)
    _check_resumable(load_recorded(folder / paths.SPEC_FILE), spec)


def _lacking(folder: Path) -> str | None:
    """Returns the name of a file without which the records in a folder are incomplete."""
    log = paths.event_file(folder)
    if _has_begun(folder) and not (folder / paths.SPEC_FILE).exists():
        return paths.SPEC_FILE
    return log.name if paths.list_trials(folder) and not log.exists() else None


def _check_resumable(stored: RunSpec, given: RunSpec) -> None:
    """Raises SweepError with all fields that must not differ but do."""
    free: tuple[str, ...] = FREE_ON_RESUME
    if given.search.num_configurations >= stored.search.num_configurations:
        free += ("search.num_trials",)
    if _extends_grid(stored.search, given.search):
        free += ("search.space",)
    if changed := changes(stored, given, free):
        raise SweepError(
            "cannot resume with another spec. Only resources, tracking, storage, evaluate.test and "
            "the limits of search may change. search.num_trials and the values of a grid may grow. "
            "These values differ:\n  "
            + "\n  ".join(changed)
            + "\ngive the spec of the start (--set PATH=VALUE sets single fields), or start again "
            "with another --name. With search.start_from it learns from the trials of this sweep"
        )


def _extends_grid(stored: SearchSpec, given: SearchSpec) -> bool:
    """Returns True if both search a grid of the same fields, and `given` lacks no value."""
    old, new = stored.space, given.space
    if not (stored.sampler == given.sampler == "grid" and old.keys() == new.keys()):
        return False
    return all(new[path].contains(value) for path in old for value in old[path].values or ())


def changes(stored: RunSpec, given: RunSpec, free: tuple[str, ...] = FREE_ON_RESUME) -> list[str]:
    """Returns the different fields with both values, except fields that begin as in `free`."""
    before, after = dump_spec(with_scheduler(stored)), dump_spec(with_scheduler(given, stored))
    found = (each for each in differences(before, after) if not each[0].startswith(free))
    return [f"{path}: {old!r} then, {new!r} now" for path, old, new in found]


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes the folder if it is new, and holds the lock of its only driver.

    Afterwards removes the folder if nothing has started in it, to let the user repeat the command.
    Raises SweepError if another process holds the lock.
    """
    make_folder(folder)
    with driver_lock(folder):
        try:
            yield
        finally:
            if not _has_begun(folder):
                remove_folder(folder, ignore_errors=True)
                with suppress(OSError):  # it has other sweeps
                    folder.parent.rmdir()


def _has_begun(folder: Path) -> bool:
    """Returns True if a folder holds more than a failed or killed start leaves behind."""
    return folder.exists() and any(e.name not in BEFORE_BEGIN for e in folder.iterdir())
