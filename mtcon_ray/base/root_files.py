"""Files below the root. No link there leads a write, or a read of a sweep's record, elsewhere.

The folder of a sweep may come from a stranger. A link in it would make a command overwrite any file
of the user. The path of the root itself may contain links, which are the user's own.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from uuid import uuid4

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.errors import SweepError

# The folders directly below a root. SWEEPS has a folder per sweep.
SWEEPS = "sweeps"
TOP = (SWEEPS, "comparisons", "store", "mlartifacts")
# More than any small file has, such as a plan with thousands of downloads.
MAX_SMALL_BYTES = 64_000_000
# A descriptor for paths alone needs no permission to list the folder.
_PLACE = os.O_DIRECTORY | os.O_PATH


def split_at_root(path: Path) -> tuple[Path, tuple[str, ...]]:
    """Returns the root of a path and the parts below it.

    The last part in TOP lies directly below the root. Any other path is a choice of the user, and
    its root is its parent. Raises SweepError if a part below the root is "..".

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

    For reading, a file may be a link within the folder of its sweep. A new file is readable by
    its owner alone. Raises SweepError for a link, and for a pipe or device.
    """
    flags |= os.O_NONBLOCK  # a pipe without a reader would block
    is_write = flags & (os.O_WRONLY | os.O_RDWR)
    own = Path(path) if is_write else check_own(Path(path))
    descriptor = os.open(path, flags) if own is None else _open_without_links(own, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_plain(path)
    return descriptor


def _open_without_links(path: Path, flags: int) -> int:
    with _folder_of(path) as (place, name):
        try:
            return os.open(name, flags | os.O_NOFOLLOW, 0o600, dir_fd=place)
        except OSError:
            check_no_links(path)  # the system only reports too many links
            raise


@contextmanager
def _folder_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yields a descriptor of a path's folder, reached without links below the root, and the name.

    All writes use the descriptor, because a check of the path could be outdated at once.
    """
    root, parts = split_at_root(path)
    with ExitStack() as stack:
        try:
            place = os.open(root, _PLACE)
            stack.callback(os.close, place)
            for part in parts[:-1]:
                place = os.open(part, _PLACE | os.O_NOFOLLOW, dir_fd=place)
                stack.callback(os.close, place)
            yield place, parts[-1]
        except OSError as error:
            check_no_links(path, itself=False)  # the system says only: not a folder
            error.filename = str(path)
            raise


def check_no_links(path: Path, *, itself: bool = True) -> None:
    """Raises SweepError if a folder above the path up to the root, or the path itself, is a link.

    Checks the paths opened by libraries.
    """
    if link := _first_link(path, itself=itself):
        raise SweepError(
            f"{link} is a link to {os.readlink(link)}, and nothing is written through links below "
            "the root; remove the link; name a folder elsewhere with --root or storage.root"
        )


def check_own(path: Path) -> Path | None:
    """Returns the path without links of a file read from the folder of a sweep.

    Raises SweepError unless it is a plain file of its own folder. Returns None for a path
    elsewhere, without a check. The file need not exist.
    """
    root, parts = split_at_root(path)
    if parts[0] != SWEEPS or len(parts) < 3:
        return None
    target, home = os.path.realpath(path), os.path.realpath(root.joinpath(*parts[:2]))
    if not Path(target).is_relative_to(home):
        raise SweepError(
            f"{path} is not read, because the link {_first_link(path)} leads out of its folder, to "
            f"{target}; remove the link, or replace it by the file"
        )
    if path.exists() and not path.is_file():
        raise _not_plain(path)
    return Path(target)


def _first_link(path: Path, *, itself: bool = True) -> Path | None:
    place, parts = split_at_root(path)
    for part in parts if itself else parts[:-1]:
        place /= part
        if place.is_symlink():
            return place
    return None


def _not_plain(path: str | Path) -> SweepError:
    return SweepError(f"{path} is a folder, pipe or device instead of a plain file; remove it")


def read_small(path: Path) -> bytes:
    """Returns the content of a file. Raises OSError if it is larger than MAX_SMALL_BYTES."""
    with open_regular(path, MAX_SMALL_BYTES, opener=below) as file:
        return file.read()


def write(path: Path, content: str | bytes) -> None:
    """Writes a file, as UTF-8."""
    with open(path, "wb", opener=below) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def replace(path: Path, content: str) -> None:
    """Writes a file as a whole for other processes. After a power cut it may be empty."""
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    write(new, content)
    move(new, path)


def touch(path: Path) -> None:
    """Creates a file unless it exists, and sets its modification time to now."""
    with open(path, "ab", opener=below) as file:
        os.utime(file.fileno())


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, unless they exist, readable by their owner alone."""
    if not path.parent.exists():
        make_folder(path.parent)
    with _folder_of(path) as (place, name):
        try:
            os.mkdir(name, 0o700, dir_fd=place)
        except FileExistsError:
            check_no_links(path)
            if not path.is_dir():
                raise


def move(path: Path, to: Path) -> None:
    """Renames a file or folder. Replaces a file, or a link itself, at the new path."""
    with _folder_of(path) as (source, name), _folder_of(to) as (target, new):
        os.replace(name, new, src_dir_fd=source, dst_dir_fd=target)


def remove(path: Path) -> None:
    """Removes a file, or a link itself, if it exists."""
    with suppress(FileNotFoundError), _folder_of(path) as (place, name):
        os.unlink(name, dir_fd=place)


def remove_folder(path: Path, *, ignore_errors: bool = False) -> None:
    """Removes a folder with its content. Links in it are removed and not followed."""
    check_no_links(path)
    with suppress(OSError) if ignore_errors else nullcontext(), _folder_of(path) as (place, name):
        shutil.rmtree(name, ignore_errors=ignore_errors, dir_fd=place)
