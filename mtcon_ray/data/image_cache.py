"""The image store: a cache of decoded images that all processes read as one memory map.

<store>/<key>/images.npy   uint8 [N, size, size, 3]
<store>/<key>/bad.json     {row: reason} of images that could not be decoded and are black
<store>/<key>/meta.json    format, number of items, size and content key
<store>/<key>.lock         held while <key>.building is filled and renamed to <key>
<store>/keys/<signature>   the content key of the source with this signature
<store>/remote/            downloads, see data/remote.py
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
from mtcon_ray.data.local_cache import local_copy
from mtcon_ray.data.sources.base import BadImagesError, DataSource
from mtcon_ray.errors import DataError, ResourceError

FORMAT = 2
ROWS_PER_TASK = 64
MAX_THREADS = 8

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class CachedImages:
    """Decoded images: a read-only memory map, uint8 [N, size, size, 3].

    bad maps each row that could not be decoded to the reason.
    """

    images: np.ndarray
    bad: dict[int, str]
    content_key: str


def num_bytes(num_items: int, size: int) -> int:
    """Returns the size of the decoded images on disk, bytes."""
    return num_items * size * size * 3


def open_image_cache(
    source: DataSource,
    num_items: int,
    size: int,
    store: Path,
    progress: ReportProgress | None,
    node_store: Path | None = None,
) -> CachedImages:
    """Returns a source's images, decoded to `size` pixels now if no process has done so.

    `progress(done, total)` is called with numbers of images. With `node_store` images are read
    from a copy there, see data/local_copy.py.

    Raises DataError if too many images cannot be decoded, ResourceError if the disk is too small
    or not writable; no partial result remains.
    """
    try:
        store.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = _content_key(source, store / "keys")
        folder = _folder(store, size, content)
        if not folder.exists():
            with locked(folder.with_suffix(".lock")):
                if not folder.exists():  # another process may have built it meanwhile
                    _build(source, (num_items, size), content, folder, progress)
    except OSError as error:
        raise ResourceError(
            f"the image store must be writable, got {error.strerror or error} under {store}; "
            "set storage.root to another place"
        ) from error
    nearest = local_copy(folder, node_store) if node_store else folder
    stored = _load(nearest, (num_items, size), content)
    _check_bad(stored.bad, num_items, source.max_bad_fraction, folder)
    return stored


def check_room(
    source: DataSource, num_items: int, size: int, store: Path, downloads: int = 0
) -> CachedImages | None:
    """Returns a source's images if they are cached, else checks the disk space and returns None.

    `downloads` is the number of bytes that the same disk must also hold. Reads no image; a source
    without a signature counts as not cached.

    Raises ResourceError if the disk is too small, DataError if too many images are bad.
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
    """Returns the source's content key, from <store>/keys if its signature is known."""
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
    """Decodes into a temporary directory and renames it. The caller holds the lock."""
    building = folder.with_suffix(".building")
    shutil.rmtree(building, ignore_errors=True)  # left by a killed process
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
    """Writes all images to one .npy file; returns the reasons of bad rows, ascending by row."""
    num_items, size = shape
    bad: dict[int, str] = {}
    with open(path, "wb") as file:
        # Only the header: np.save would need the whole array in memory.
        header = {"descr": "|u1", "fortran_order": False, "shape": (num_items, size, size, 3)}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        start = file.tell()

        # Written with pwrite, not through a memory map: on a full disk pwrite raises OSError,
        # while a map would kill the process with SIGBUS.
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
        written = os.pwrite(descriptor, data, offset)  # may write less than asked
        data, offset = data[written:], offset + written


def _load(folder: Path, shape: tuple[int, int], content: str) -> CachedImages:
    try:
        images = np.load(folder / "images.npy", mmap_mode="r")
        bad = {int(row): why for row, why in json.loads((folder / "bad.json").read_text()).items()}
    except (OSError, ValueError) as error:
        raise DataError(
            f"the image store {folder} must be whole, got {error}; delete it, it is made anew"
        ) from None
    num_items, size = shape
    assert images.shape == (num_items, size, size, 3), (images.shape, shape)
    return CachedImages(images, bad, content)


def _check_bad(bad: dict[int, str], num_items: int, allowed: float, folder: Path) -> None:
    """Raises DataError if more than the `allowed` share of images is bad.

    The message lists the first MAX_SHOWN; if there are more, a file beside `folder` has all.
    """
    if len(bad) <= allowed * num_items:
        return
    rest = ""
    if len(bad) > MAX_SHOWN:
        every = folder.with_suffix(".bad.txt")
        _write(every, "\n".join(bad.values()) + "\n")
        rest = f"\n  and {len(bad) - MAX_SHOWN} more; all of them: {every}"
    raise DataError(too_many_bad(f"{len(bad)} of {num_items}", bad.values(), allowed) + rest)


def _write(path: Path, text: str) -> None:
    """Writes a file atomically: readers find the whole text or no file."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)
