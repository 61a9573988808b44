"""Free disk space, atomic file writes, and locks between processes."""

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
    """Checks that `needed` bytes are free on the disk of `store`, which need not exist yet.

    Raises ResourceError if fewer are free; `way_out` ends its message.
    """
    there = next(p for p in (store, *store.absolute().parents) if p.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        raise ResourceError(
            f"the disk of {store} must have {needed / 1e9:.3g} GB free for the image store, got "
            f"{free / 1e9:.3g} GB; {way_out}"
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on a file, waiting while another process holds it.

    The kernel releases the lock of a process that is killed.
    """
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def whole_file(path: Path, *, previous: Path | None = None) -> Iterator[BinaryIO]:
    """Yields a binary file to write that replaces `path` atomically when the context ends.

    After a crash `path` is the old file or the complete new one. If `previous` is given, the old
    file is renamed to it. A crash between the two renames leaves only `previous`.

    Raises StorageError if the directory cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
            # Before the rename: after a power cut the new name must not lead to lost data.
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
        # If writing failed, this may fail too; the first error is the one to show.
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Flushes a directory's entries, so that a rename in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
