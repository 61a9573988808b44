"""Files below the root. No link there leads a write, or a read of a sweep's record, elsewhere.

The folder of a sweep may come from a stranger. A link in it would make a command overwrite any file
of the user. The path of the root itself may contain links, which are the user's own.
"""

import os
import shutil
import stat
from pathlib import Path

from mtcon_ray.errors import SweepError
from mtcon_ray.regular_file import open_regular

# The folders directly below a root. Those of FOLDERS contain one folder per sweep or training.
FOLDERS = ("sweeps", "runs")
TOP = (*FOLDERS, "comparisons", "store", "mlartifacts")
# More than any small file has, such as a plan with thousands of downloads.
MAX_SMALL_BYTES = 64_000_000
# A descriptor for paths alone needs no permission to list the folder.
_PLACE = os.O_DIRECTORY | getattr(os, "O_PATH", os.O_RDONLY)


def split_at_root(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Returns the root of a path and the parts below it.

    The last part that is in TOP lies directly below the root. Any other path is a choice of the
    user, and its root is its parent. Raises SweepError if a part below the root is "..".

    >>> split_at_root(Path("/home/runs/jan/sweeps/a/lock"))
    (PosixPath('/home/runs/jan'), ('sweeps', 'a', 'lock'))
    """
    parts = path.absolute().parts
    top = max((i for i, part in enumerate(parts) if part in TOP), default=len(parts) - 1)
    if ".." in parts[top:]:
        raise SweepError(f"a path below the root must not contain '..', got {path}")
    return Path(*parts[:top]), parts[top:]


def below(path: str, flags: int) -> int:
    """Opens a file for `open(path, mode, opener=below)` and follows no link below the root.

    A file that is only read may be a link within the folder of its sweep. A new file is readable by
    its owner alone. Raises SweepError for a link, and for a pipe or device.
    """
    if flags & (os.O_WRONLY | os.O_RDWR):
        descriptor = _open_without_links(Path(path), flags)
    else:
        check_own(Path(path))
        descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_plain(path)
    return descriptor


def _open_without_links(path: Path, flags: int) -> int:
    root, parts = split_at_root(path)
    place = os.open(root, _PLACE)
    try:
        # From folder to folder, because a check of the whole path could be outdated at once.
        for part in parts[:-1]:
            inner = os.open(part, _PLACE | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = inner
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe without a reader would block
        return os.open(parts[-1], flags, 0o600, dir_fd=place)
    except OSError as error:
        check_no_links(path)  # the system says only that a part is no folder
        error.filename = str(path)
        raise
    finally:
        os.close(place)


def check_no_links(path: Path, *, itself: bool = True) -> None:
    """Raises SweepError if a folder above the path up to the root, or the path itself, is a link.

    Paths that a library opens are checked here.
    """
    if link := _first_link(path, itself=itself):
        raise SweepError(
            f"{link} must not be a link to be written, got a link to {os.readlink(link)}; remove "
            "the link; to keep results elsewhere, name that folder with --root or storage.root"
        )


def check_own(path: Path) -> None:
    """Raises SweepError unless a file that is read is a plain file of its own sweep or training.

    Only the folders of sweeps and trainings are checked. The file need not exist.
    """
    root, parts = split_at_root(path)
    if parts[0] not in FOLDERS or len(parts) < 3:
        return
    if link := _first_link(path):
        target, home = os.path.realpath(path), os.path.realpath(root.joinpath(*parts[:2]))
        if not Path(target).is_relative_to(home):
            raise SweepError(
                f"{path} must be a file of its own folder, got {target} through the link {link}; "
                "remove the link, or replace it by the file"
            )
    if path.exists() and not path.is_file():
        raise _not_plain(path)


def _first_link(path: Path, *, itself: bool = True) -> Path | None:
    place, parts = split_at_root(path)
    for part in parts if itself else parts[:-1]:
        place /= part
        if place.is_symlink():
            return place
    return None


def _not_plain(path: str | Path) -> SweepError:
    return SweepError(f"{path} must be a plain file, got a folder, pipe or device; remove it")


def read_small(path: Path) -> bytes:
    """Returns the content of a file. Raises OSError if it is larger than MAX_SMALL_BYTES."""
    check_own(path)
    with open_regular(path, MAX_SMALL_BYTES) as file:
        return file.read()


def write(path: Path, content: str | bytes) -> None:
    """Writes a file, as UTF-8."""
    with open(path, "wb", opener=below) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def touch(path: Path) -> None:
    """Creates a file unless it exists, and sets its modification time to now."""
    with open(path, "ab", opener=below) as file:
        os.utime(file.fileno())


def make_folder(path: Path) -> None:
    """Creates a folder and those above it, unless they exist, readable by their owner alone."""
    check_no_links(path)
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def move(path: Path, to: Path) -> None:
    """Renames a file or folder; replaces a file, or a link itself, at the new path."""
    check_no_links(path, itself=False)
    check_no_links(to, itself=False)
    os.replace(path, to)


def remove(path: Path) -> None:
    """Removes a file, or a link itself, if there is one."""
    check_no_links(path, itself=False)
    path.unlink(missing_ok=True)


def remove_folder(path: Path, *, ignore_errors: bool = False) -> None:
    """Removes a folder with its content; links in it are removed and not followed."""
    check_no_links(path)
    shutil.rmtree(path, ignore_errors=ignore_errors)
