"""Checks of free disk space, and atomic creation of files and folders."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mtcon_ray.base.root_files import below, make_folder, move, remove, remove_folder
from mtcon_ray.errors import PreemptedError, ResourceError, StorageError, SweepError

# Raises PreemptedError in a process that must not replace a file any more.
Check = Callable[[], None]


def check_disk(needed: int, store: Path) -> None:
    """Checks for `needed` free bytes on the disk of `store`, which need not exist yet.

    Raises ResourceError if fewer bytes are free.
    """
    there = next(p for p in (store, *store.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ResourceError(
            f"the image store needs {needed / 1e9:.3g} GB, but the disk of {store} has "
            f"{free / 1e9:.3g} GB free; lower data.store_size or use another disk"
        )


@contextmanager
def writable_store(store: Path) -> Iterator[None]:
    """Turns an OSError into a ResourceError asking for a writable image store."""
    try:
        yield
    except OSError as error:
        raise ResourceError(
            f"cannot write the image store under {store}: {error.strerror or error}; set "
            "storage.root to another place"
        ) from error


def build_folder(
    folder: Path, needed: int, fill: Callable[[Path], None], *, resumable: bool = False
) -> None:
    """Creates `folder` with the files written by `fill(directory)`, unless it exists.

    `fill` is called with a temporary directory, <folder>.building, which is renamed at the end.
    Other processes find the complete folder or nothing. The first process builds the folder under a
    lock on <folder>.lock, and the others wait. The kernel releases the lock of a killed process.
    With `resumable` the temporary directory stays if `fill` is killed, interrupted or fails, and
    the next `fill` is called with it. An error of this disk, which may be full, removes it.

    A folder that exists gets the present time: what is used is not removed as unused.

    Raises ResourceError if fewer than `needed` bytes are free, or if the disk cannot be written.
    """
    if folder.exists():
        with suppress(OSError):  # the folder of another user
            os.utime(folder)
        return
    with writable_store(folder.parent):
        make_folder(folder.parent)
        with open(folder.with_suffix(".lock"), "w", opener=below) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Another process may have built it meanwhile.
            if not folder.exists():
                _fill(folder, needed, fill, resumable)


def _fill(folder: Path, needed: int, fill: Callable[[Path], None], resumable: bool) -> None:
    building = folder.with_suffix(".building")
    if not resumable:
        remove_folder(building, ignore_errors=True)  # left by a killed process
    check_disk(needed - bytes_built(folder), folder.parent)
    make_folder(building)
    try:
        fill(building)
        move(building, folder)
    except BaseException as error:
        if not resumable or isinstance(error, OSError | StorageError):
            remove_folder(building, ignore_errors=True)
        raise


def bytes_built(folder: Path) -> int:
    """Returns the size on disk of the files left by an interrupted `build_folder`."""
    building = folder.with_suffix(".building")
    files = building.iterdir() if building.exists() else ()
    # In blocks of 512 bytes: a file filled piece by piece has its full length from the start.
    return sum(file.stat().st_blocks * 512 for file in files)


@contextmanager
def damage(what: str, folder: Path) -> Iterator[None]:
    """Turns each error of reading a complete folder into a StorageError naming it."""
    try:
        yield
    except Exception as error:  # of any class, for content of any kind
        raise StorageError(
            f"{what} {folder} is damaged: {error}; delete it, and it is made again"
        ) from None


@contextmanager
def whole_file(
    path: Path, *, previous: Path | None = None, check: Check = lambda: None
) -> Iterator[BinaryIO]:
    """Yields a new binary file, which replaces `path` atomically when the context ends.

    After a crash `path` is the old file or the complete new file. If `previous` is given, the old
    file is renamed to it. A crash between the two renames leaves only `previous`.

    `check` is called once the file is whole, and raises PreemptedError in a process that must not
    replace `path` any more. Raises StorageError if the directory cannot be written.
    """
    temporary = partial_of(path)
    try:
        if not temporary.is_symlink():  # which `below` refuses
            # A frozen process may have it open, and write to it when it continues.
            remove(temporary)
        with open(temporary, "wb", opener=below) as file:
            yield file
            # Before the rename: after a power cut the new name must not lead to lost data.
            file.flush()
            os.fsync(file.fileno())
        check()
        if previous is not None:
            with suppress(FileNotFoundError):
                move(path, previous)
        move(temporary, path)
        _sync_folder(path.parent)
    except PreemptedError:
        raise  # the temporary file may belong to another process now
    except BaseException as error:
        # If writing failed, this may fail too. The user should see the first error.
        with suppress(OSError, SweepError):
            remove(temporary)
        if isinstance(error, OSError):
            raise StorageError.of(path, error) from error
        raise


def partial_of(path: Path) -> Path:
    """Returns the path of the temporary file of `whole_file`, which a kill may leave."""
    return path.with_name(f".{path.name}.partial")


def _sync_folder(folder: Path) -> None:
    """Flushes a directory's entries. A rename in it then survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
