"""Folders of a local Ray, which no other user can enter.

<RAY_TMPDIR, else TMPDIR, else /tmp>/mtcon-ray-<user id>/
    ray/     sessions: sockets, logs and the processes' working directories
    empty/   the working directory of a process that uses Ray
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

from mtcon_ray.errors import MtconError

_left: Path | None = None  # the working directory before `away`


def private_folder() -> Path:
    """Returns the folder of all files of local Rays; makes it with mode 0700 if it is missing.

    Ray itself makes folders that everybody may write to. Raises MtconError if the folder cannot be
    made, or if it is a link or another user's.
    """
    base = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    folder = Path(base).absolute() / f"mtcon-ray-{os.getuid()}"
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700, parents=True)
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "a link or a folder of another user", str(folder))
        folder.chmod(0o700)
    except OSError as error:
        raise MtconError(
            "Ray must be able to write its sessions, below RAY_TMPDIR, else TMPDIR, else /tmp, got "
            f"{error.strerror} for {folder}; set RAY_TMPDIR to a folder that can be written"
        ) from None
    return folder


def sessions_folder() -> Path:
    """Returns the folder in which a local Ray makes a folder for each session."""
    return private_folder() / "ray"


@contextmanager
def away() -> Iterator[None]:
    """Changes to an empty working directory while this process uses Ray.

    Ray starts its processes there, and Python may look for modules in a working directory. Ray may
    also replace the directory of a job while the job's driver runs in it.
    """
    global _left
    empty = private_folder() / "empty"
    empty.mkdir(mode=0o700, exist_ok=True)
    before, _left = _left, working_folder()
    try:
        with chdir(empty):
            yield
    finally:
        _left = before


def working_folder() -> Path:
    """Returns the user's working directory, also in the context of `away`."""
    return _left or Path.cwd()
