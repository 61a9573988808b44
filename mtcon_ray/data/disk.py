"""Room on a disk, and locks between processes."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtcon_ray.errors import ResourceError

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
