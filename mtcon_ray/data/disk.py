"""Room on a disk, files that are whole or absent, and locks between processes."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from mtcon_ray.errors import ResourceError, StorageError

WAY_OUT = "lower data.store_size or set storage.root to another disk"


def check_disk(needed: int, store: Path, way_out: str = WAY_OUT) -> None:
    """Raises ResourceError unless that many bytes are free where `store` is or will be made."""
    there = next(p for p in (store, *store.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ResourceError(
            f"the disk of {store} must have {needed / 1e9:.3g} GB free for the image store, got "
            f"{free / 1e9:.3g} GB; {way_out}"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for other processes; the kernel frees the lock of one that is killed."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def whole_file(path: Path, *, previous: Path | None = None) -> Iterator[BinaryIO]:
    """Yields a file to write, so that `path` is the old file or the whole new one.

    The old file, if any, becomes `previous` where one is given; a kill between the two renames
    leaves `previous` alone. Raises StorageError if the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if previous is not None:
            with suppress(FileNotFoundError):
                os.replace(path, previous)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StorageError.of(path, error) from error
    finally:
        # A disk that refused the file may refuse this too: the first error is the one to show.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
