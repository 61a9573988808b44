"""A sweep's directory: its name, and the lock of its one driver."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtcon_ray.cluster.job_package import VERSIONS_VARIABLE
from mtcon_ray.errors import SweepError, nearest
from mtcon_ray.lock import FILE, driver_lock
from mtcon_ray.paths import SPEC_FILE, last_name, new_name, sweep_folder, sweeps_folder
from mtcon_ray.presentation import resume_line
from mtcon_ray.recorded import check_evaluation, load_recorded
from mtcon_ray.results import JOB
from mtcon_ray.resumable import check_resumable
from mtcon_ray.spec import RunSpec

# A sweep's directory holds no more than these before its spec is written.
BEFORE_BEGIN = (FILE, "log")


def choose_folder(root: Path, spec: RunSpec, name: str | None, resume: bool) -> Path:
    """Returns the sweep's directory, which does not exist yet unless the sweep is resumed.

    Raises SweepError for a new name that exists, and for a resumed one that does not exist or whose
    spec differs.
    """
    if name is None:
        if not resume:
            return sweep_folder(root, new_name(sweeps_folder(root), spec.name))
        name = last_name(sweeps_folder(root), spec.name)
    folder = sweep_folder(root, name)
    if not resume:
        if _has_begun(folder):
            # The cluster lists no job of this name, or `submit` would have chosen another one. So
            # `mtcon-ray resume` would not find it.
            line = (
                f"repeat `mtcon-ray submit` with --name {name}"
                if in_job()
                else resume_line(name, submitted=False)
            )
            raise SweepError(
                f"sweep {name!r} exists already under {folder.parent}; to go on with it: {line}; "
                "for a new one: give another --name"
            )
        return folder
    if not (folder / SPEC_FILE).exists():
        known = [p.name for p in sweeps_folder(root).glob("*") if (p / SPEC_FILE).exists()]
        raise SweepError(f"no sweep {name!r} under {folder.parent} to resume{nearest(name, known)}")
    check_evaluation(folder)
    check_resumable(load_recorded(folder / SPEC_FILE), spec)
    return folder


def job_tag() -> dict[str, str]:
    """Returns the tag of a sweep that a job of `mtcon-ray submit` started; {} outside of jobs."""
    return {JOB: "true"} if in_job() else {}


def in_job() -> bool:
    """Returns True in a job of `mtcon-ray submit`: its user typed another command than this one."""
    return VERSIONS_VARIABLE in os.environ


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Makes the directory if it is new, and holds the lock of the sweep's one driver.

    Afterwards removes a directory in which no sweep has started, so that the same command can be
    repeated.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with driver_lock(folder):
        try:
            yield
        finally:
            if not _has_begun(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _has_begun(folder: Path) -> bool:
    """Returns True if a directory holds more than a failed or killed start leaves behind."""
    return folder.exists() and any(e.name not in BEFORE_BEGIN for e in folder.iterdir())
