"""The image store: a cache of decoded images, read by all processes as a memory map.

<store>/<key>/images.npy   uint8 [N, size, size, 3]
<store>/<key>/bad.json     {row: reason} of undecodable images, which are black
<store>/<key>/checksums.json   of the files above, see data/checksums.py
<store>/<key>.lock         held while <key>.building is filled and renamed to <key>
<store>/<key>.building/    the same while it is incomplete, and
                           .decoded.json  [number of rows in images.npy, bad.json so far]
<store>/keys/<signature>.<content key>   of a source, an empty file
<store>/remote/            downloads, see data/remote.py
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Literal, NamedTuple

import numpy as np

from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.base.root_files import below, check_no_links, make_folder, remove, touch, write
from mtcon_ray.data import disk
from mtcon_ray.data.checksums import write_checksums
from mtcon_ray.data.decoding import Decoded, Decoder, DecoderLostError
from mtcon_ray.data.remote import Report
from mtcon_ray.data.sources.files import DataSource, FilesSource
from mtcon_ray.errors import DataError, StorageError

FORMAT = 2
PROGRESS = ".decoded.json"  # files with a dot at the start get no checksum
ROWS_PER_TASK = 128
# Saves are in the order of rows. A kill repeats so many tasks, or more after a slow task.
TASKS_PER_SAVE = 32
# Below this number of images for each core, other machines would begin too late to help.
MANY = 5_000

Way = Callable[[Sequence[int], int], Decoded]  # `DataSource.decode`
# Gives decoders that use the cores of other machines, and ends their use. They end at the event.
Lent = Callable[[Event], AbstractContextManager[Sequence[Decoder]]]


def lent_nothing(stopped: Event) -> AbstractContextManager[Sequence[Decoder]]:
    """Returns no decoders of other machines."""
    return nullcontext(())


class CachedImages(NamedTuple):
    """Decoded images: a read-only memory map, uint8 [N, size, size, 3].

    bad maps each undecodable row to the reason. key is the name of the images' folder.
    """

    images: np.ndarray
    bad: dict[int, str]
    content_key: str
    key: str


def num_bytes(num_items: int, size: int) -> int:
    """Returns the size of the decoded images on disk, bytes."""
    return num_items * size * size * 3


def open_image_cache(
    source: DataSource, num_items: int, size: int, store: Path, progress: Report = lambda *_: None,
    lent: Lent = lent_nothing,
) -> CachedImages:  # fmt: skip
    """Returns a source's images, decoded to `size` pixels now if no process has done so.

    `progress(done, total)` is called with numbers of images. `lent` is called for many image files.

    Interrupted or killed decoding continues from the last save. Undecodable images, however many,
    are not an error: the store records them for the caller.

    Raises ResourceError if the disk is too small, not writable or not readable, and StorageError if
    the files of decoded images are incomplete or damaged.
    """
    with disk.writable_store(store):
        content = _content_key(source, store)
    folder = _folder(store, size, content)
    fill = partial(_decode_all, source, num_items, size, progress, lent)
    disk.build_folder(folder, num_bytes(num_items, size), fill, resumable=True)
    return _load(folder, num_items, size, content)


def check_room(
    signature: str | None, num_items: int, size: int, store: Path, downloads: int = 0
) -> CachedImages | None:
    """Returns a source's images if they are cached, else checks the disk space and returns None.

    `signature` is the source's. Without one it counts as not cached. `downloads` is the size in
    bytes of downloads to the same disk. Reads no image.

    Raises ResourceError if the disk is too small, StorageError as `open_image_cache` does.
    """
    needed = num_bytes(num_items, size) + downloads
    if (content := _recorded_content(signature, store)) is not None:
        folder = _folder(store, size, content)
        if folder.exists():
            return _load(folder, num_items, size, content)
        needed -= disk.bytes_built(folder)
    disk.check_disk(needed, store)
    return None


def _folder(store: Path, size: int, content: str) -> Path:
    return store / hashlib.sha256(f"{FORMAT} {size} {content}".encode()).hexdigest()[:32]


def _recorded_content(signature: str | None, store: Path) -> str | None:
    """Returns the content key of the source with this signature, None if none is recorded."""
    found = next((store / "keys").glob(f"{signature}.*"), None)
    return None if found is None else found.suffix.removeprefix(".")


def _content_key(source: DataSource, store: Path) -> str:
    """Returns the content key of a source, and records it if the source has a signature."""
    signature = source.signature()
    if (content := _recorded_content(signature, store)) is None:
        content = source.content_key()
        if signature is not None:
            make_folder(store / "keys")
            touch(store / "keys" / f"{signature}.{content}")
    return content


def _decode_all(
    source: DataSource, num_items: int, size: int, progress: Report, lent: Lent, building: Path
) -> None:
    """Writes the files of a folder of the store, all images from the first missing row on."""
    path, saved = building / "images.npy", building / PROGRESS
    check_no_links(path)
    done, bad = _decoded_before(building, num_items, size)
    # Writes the header only: np.save would need the whole array in memory.
    mode: Literal["r+", "w+"] = "r+" if done else "w+"
    start = np.lib.format.open_memmap(path, mode, np.uint8, (num_items, size, size, 3)).offset
    free: SimpleQueue[Way] = SimpleQueue()
    stopped = Event()

    def decode(first: int) -> dict[int, str]:
        rows = range(first, min(first + ROWS_PER_TASK, num_items))
        images = None
        while images is None:
            way = free.get()
            try:
                images, reasons = way(rows, size)
            except DecoderLostError:
                continue  # without this way
            except BaseException:
                free.put(way)  # for the tasks that wait
                raise
            free.put(way)
        expected, images = (len(rows), size, size, 3), np.ascontiguousarray(images)
        if images.dtype != np.uint8 or images.shape != expected:
            raise DataError(
                f"{type(source).__name__}.decode must return uint8 images {list(expected)}, got "
                f"{images.dtype} {list(images.shape)}"
            )
        # Written to the file, not through the memory map: on a full disk `write` raises OSError,
        # while a map would kill the process with SIGBUS.
        with open(path, "r+b", opener=below) as file:
            file.seek(start + num_bytes(first, size))
            file.write(images.data)
        return reasons

    with ExitStack() as stack:
        ways: list[Way] = [source.decode] * min(source.num_threads, usable_cpus())
        if isinstance(source, FilesSource) and num_items - done >= MANY * len(ways):
            decoders = stack.enter_context(lent(stopped)) if source.is_plain else ()
            ways += [partial(source.decode, decoder=decoder) for decoder in decoders]
        for way in ways:
            free.put(way)
        pool = stack.enter_context(ThreadPoolExecutor(len(ways)))
        stack.callback(stopped.set)  # before the pool waits for its threads
        # An exception in the loop closes the iterator of `map`, which cancels the other tasks.
        tasks = range(done, num_items, ROWS_PER_TASK)
        for task, reasons in enumerate(pool.map(decode, tasks), 1):
            bad |= reasons
            done = min(done + ROWS_PER_TASK, num_items)
            if task % TASKS_PER_SAVE == 0 or done == num_items:
                # First the images: after a power cut they must not be missing from the file.
                with path.open("rb") as file:
                    os.fsync(file.fileno())
                with disk.whole_file(saved) as record:
                    record.write(json.dumps((done, bad)).encode())
            progress(done, num_items)
    write(building / "bad.json", json.dumps(bad, indent=1))
    write_checksums(building)
    # Last: without this file all images would be decoded again after a kill.
    remove(saved)


def _decoded_before(building: Path, num_items: int, size: int) -> tuple[int, dict[int, str]]:
    """Returns the number of rows decoded by an earlier process (0 if damaged), and its bad rows."""
    try:
        map_images(building, num_items, size)
        done, reasons = json.loads((building / PROGRESS).read_text(encoding="utf-8"))
        bad = {int(row): str(why) for row, why in reasons.items()}
    except (StorageError, OSError, ValueError, TypeError, AttributeError):
        return 0, {}
    return (done, bad) if done in range(num_items + 1) else (0, {})


def _load(folder: Path, num_items: int, size: int, content: str) -> CachedImages:
    images = map_images(folder, num_items, size)
    with disk.damage("the image store", folder):
        reasons = json.loads((folder / "bad.json").read_text(encoding="utf-8"))
        bad = {int(row): str(why) for row, why in reasons.items()}
    return CachedImages(images, bad, content, folder.name)


def map_images(folder: Path, num_items: int, size: int | None = None) -> np.ndarray:
    """Returns the images in a folder of the store, by default of any size, as a memory map.

    Raises StorageError if the file has other or no images.
    """
    with disk.damage("the image store", folder):
        # Not np.load, which also opens zip files and takes other files for pickles.
        images = np.lib.format.open_memmap(folder / "images.npy", mode="r")
        side = images.shape[1] if size is None else size
        if images.shape != (num_items, side, side, 3) or images.dtype != np.uint8:
            raise ValueError(f"its images are {images.dtype} {images.shape}")
        return images
