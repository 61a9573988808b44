"""Images decoded once, shared by every process of a machine as one memory map.

<store>/<key>/images.npy   uint8 [N, size, size, 3]
<store>/<key>/bad.json     row to reason, of images left black
<store>/<key>/meta.json    what was decoded, and how
<store>/<key>.lock         held while <key>.building is filled and renamed to <key>
<store>/keys/<signature>   the content key that a signature stands for
<store>/remote/            what was downloaded; data/remote.py
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtcon_ray.data.disk import check_disk, locked
from mtcon_ray.data.image_check import MAX_SHOWN, too_many_bad
from mtcon_ray.data.node_copy import node_copy
from mtcon_ray.data.sources.base import BadImagesError, DataSource
from mtcon_ray.errors import DataError, ResourceError

FORMAT = 2
ROWS_PER_TASK = 64
MAX_THREADS = 8

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class StoredImages:
    """A read-only memory map, uint8 [N, size, size, 3], and the rows that could not be read."""

    images: np.ndarray
    bad: dict[int, str]
    content_key: str


def num_bytes(num_items: int, size: int) -> int:
    """Bytes that the images of one store take on disk."""
    return num_items * size * size * 3


def open_store(
    source: DataSource,
    num_items: int,
    size: int,
    store: Path,
    progress: ReportProgress | None,
    node_store: Path | None = None,
) -> StoredImages:
    """Images of a source, decoded now if no process has done so before.

    With `node_store` they are read from a copy there, as data/node_copy.py says.

    Raises DataError where too many images cannot be read, ResourceError where the disk is too
    small or cannot be written; then nothing is left behind.
    """
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = _content_key(source, store / "keys")
        folder = _folder(store, size, content)
        if not folder.exists():
            with locked(folder.with_suffix(".lock")):
                if not folder.exists():
                    _build(source, (num_items, size), content, folder, progress)
    except OSError as error:
        raise ResourceError(
            f"the image store must be writable, got {error.strerror or error} under {store}; "
            "set storage.root to another place"
        ) from error
    nearest = node_copy(folder, node_store) if node_store else folder
    stored = _load(nearest, (num_items, size), content)
    _check_bad(stored.bad, num_items, source.max_bad_fraction, folder)
    return stored


def check_room(
    source: DataSource, num_items: int, size: int, store: Path, downloads: int = 0
) -> StoredImages | None:
    """Images that are stored already; None if they are not, and the disk has room for them.

    `downloads` are bytes that have to lie beside them. Images of a source without a signature
    count as not stored; no image is read to find out.

    Raises ResourceError where the disk is too small, DataError where too many images are bad.
    """
    signature = source.signature()
    known = store / "keys" / signature if signature is not None else None
    content = known.read_text() if known is not None and known.exists() else None
    folder = _folder(store, size, content) if content is not None else None
    if content is None or folder is None or not folder.exists():
        check_disk(num_bytes(num_items, size) + downloads, store)
        return None
    stored = _load(folder, (num_items, size), content)
    _check_bad(stored.bad, num_items, source.max_bad_fraction, folder)
    return stored


def _folder(store: Path, size: int, content: str) -> Path:
    return store / hashlib.sha256(f"{FORMAT} {size} {content}".encode()).hexdigest()[:32]


def _content_key(source: DataSource, keys: Path) -> str:
    """The source's content key, remembered under its signature."""
    signature = source.signature()
    if signature is None:
        return source.content_key()
    known = keys / signature
    if known.exists():
        return known.read_text()
    content = source.content_key()
    keys.mkdir(exist_ok=True)
    _write(known, content)
    return content


def _build(
    source: DataSource,
    shape: tuple[int, int],
    content: str,
    folder: Path,
    progress: ReportProgress | None,
) -> None:
    """Fills a folder beside the final one and renames it. The caller holds the lock."""
    building = folder.with_suffix(".building")
    shutil.rmtree(building, ignore_errors=True)  # of a process that was killed
    check_disk(num_bytes(*shape), folder.parent)
    building.mkdir(mode=0o700)
    try:
        bad = _decode_all(source, shape, building / "images.npy", progress)
        _check_bad(bad, shape[0], source.max_bad_fraction, folder)
        _write(building / "bad.json", json.dumps(bad, indent=1))
        meta = {"format": FORMAT, "num_items": shape[0], "size": shape[1], "content": content}
        _write(building / "meta.json", json.dumps(meta, indent=1))
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _decode_all(
    source: DataSource, shape: tuple[int, int], path: Path, progress: ReportProgress | None
) -> dict[int, str]:
    """Writes all images as one .npy file; returns the reasons of bad rows, in order."""
    num_items, size = shape
    bad: dict[int, str] = {}
    with open(path, "wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": (num_items, size, size, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        start = file.tell()

        # Written, not mapped: a full disk is then an error and not a bus error that kills.
        def decode(first: int) -> tuple[int, dict[int, str]]:
            rows = range(first, min(first + ROWS_PER_TASK, num_items))
            images, reasons = _decode(source, rows, size)
            _write_at(file.fileno(), images, start + num_bytes(first, size))
            return len(rows), reasons

        done = 0
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
            try:
                tasks = [pool.submit(decode, f) for f in range(0, num_items, ROWS_PER_TASK)]
                for task in as_completed(tasks):
                    count, reasons = task.result()
                    bad |= reasons
                    done += count
                    if progress is not None:
                        progress(done, num_items)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
        os.fsync(file.fileno())
    return dict(sorted(bad.items()))


def _decode(source: DataSource, rows: range, size: int) -> tuple[np.ndarray, dict[int, str]]:
    try:
        return source.decode(rows, size), {}
    except BadImagesError as error:
        return error.images, error.reasons


def _write_at(descriptor: int, images: np.ndarray, offset: int) -> None:
    data = memoryview(images.tobytes())
    while data:
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written


def _load(folder: Path, shape: tuple[int, int], content: str) -> StoredImages:
    try:
        images = np.load(folder / "images.npy", mmap_mode="r")
        bad = {int(row): why for row, why in json.loads((folder / "bad.json").read_text()).items()}
    except (OSError, ValueError) as error:
        raise DataError(
            f"the image store {folder} must be whole, got {error}; delete it, it is made anew"
        ) from None
    num_items, size = shape
    assert images.shape == (num_items, size, size, 3), (images.shape, shape)
    return StoredImages(images, bad, content)


def _check_bad(bad: dict[int, str], num_items: int, allowed: float, folder: Path) -> None:
    """Raises DataError with the first bad images, and all of them in a file if they are many."""
    if len(bad) <= allowed * num_items:
        return
    rest = ""
    if len(bad) > MAX_SHOWN:
        every = folder.with_suffix(".bad.txt")
        _write(every, "\n".join(bad.values()) + "\n")
        rest = f"\n  and {len(bad) - MAX_SHOWN} more; all of them: {every}"
    raise DataError(too_many_bad(f"{len(bad)} of {num_items}", bad.values(), allowed) + rest)


def _write(path: Path, text: str) -> None:
    """Atomic: readers find the whole text or no file."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)
