"""The image store: a cache of decoded images, read by all processes as a memory map.

<store>/<key>/images.npy   uint8 [N, size, size, 3]
<store>/<key>/bad.json     {row: reason} of undecodable images, which are black
<store>/<key>/meta.json    format, number of items, size and content key
<store>/<key>/checksums.json   of the files above, see data/checksums.py
<store>/<key>.lock         held while <key>.building is filled and renamed to <key>
<store>/<key>.building/    the same while it is incomplete, and
                           .decoded.json  [number of rows in images.npy, bad.json so far]
<store>/keys/<signature>   the content key of the source with this signature
<store>/remote/            downloads, see data/remote.py

A store on a slower (network) file system can be copied to each node's own disk:
<node store>/<key>/        same content as <store>/<key>/
<node store>/<key>.lock    held while <key>.building is filled and renamed to <key>
"""

import hashlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal
from uuid import uuid4

import numpy as np

from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.base.root_files import below, check_no_links, make_folder, move, remove, write
from mtcon_ray.data.checksums import write_checksums
from mtcon_ray.data.disk import build_folder, bytes_built, check_disk, whole_file, writable_store
from mtcon_ray.data.sources.base import DataSource
from mtcon_ray.errors import ResourceError, StorageError

FORMAT = 2
PROGRESS = ".decoded.json"  # files with a dot at the start get no checksum
ROWS_PER_TASK = 64
# At most so many tasks are repeated after a kill.
TASKS_PER_SAVE = 64
MAX_THREADS = 8

ReportProgress = Callable[[int, int], None]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedImages:
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
    source: DataSource,
    num_items: int,
    size: int,
    store: Path,
    progress: ReportProgress | None,
    node_store: Path | None = None,
) -> CachedImages:
    """Returns a source's images, decoded to `size` pixels now if no process has done so.

    `progress(done, total)` is called with numbers of images. With `node_store` images are read
    from a copy there, see `local_copy`.

    Interrupted or killed decoding continues from the last save. Undecodable images, however many,
    are not an error: the store records them for the caller.

    Raises ResourceError if the disk is too small, not writable or not readable, and StorageError if
    the files of decoded images are incomplete or damaged.
    """
    shape = (num_items, size, size, 3)
    with writable_store(store):
        make_folder(store)
        content = _content_key(source, size, store)
        folder = _folder(store, size, content)

        def fill(building: Path) -> None:
            bad = _decode_all(source, shape, building, progress)
            write(building / "bad.json", json.dumps(bad, indent=1))
            meta = {"format": FORMAT, "num_items": num_items, "size": size, "content": content}
            write(building / "meta.json", json.dumps(meta, indent=1))
            write_checksums(building)
            # Last: without this file all images would be decoded again after a kill.
            remove(building / PROGRESS)

        build_folder(folder, num_bytes(num_items, size), fill, resumable=True)
    near = local_copy(folder, node_store) if node_store else folder
    return _load(near, shape, content)


def check_room(
    source: DataSource, num_items: int, size: int, store: Path, downloads: int = 0
) -> CachedImages | None:
    """Returns a source's images if they are cached, else checks the disk space and returns None.

    `downloads` is the size in bytes of downloads to the same disk. Reads no image. A source without
    a signature counts as not cached.

    Raises ResourceError if the disk is too small, StorageError as `open_image_cache` does.
    """
    needed = num_bytes(num_items, size) + downloads
    content = _known_content(_key_file(source, store), size, store)
    if content is not None:
        folder = _folder(store, size, content)
        if folder.exists():
            return _load(folder, (num_items, size, size, 3), content)
        needed -= bytes_built(folder)
    check_disk(needed, store)
    return None


def _folder(store: Path, size: int, content: str) -> Path:
    return store / hashlib.sha256(f"{FORMAT} {size} {content}".encode()).hexdigest()[:32]


def _key_file(source: DataSource, store: Path) -> Path | None:
    """Returns the path of the source's cached content key, None without a signature."""
    signature = source.signature()
    return None if signature is None else store / "keys" / signature


def _known_content(known: Path | None, size: int, store: Path) -> str | None:
    """Returns the content key in the file `known` if its images exist or are begun, else None.

    The file is not trusted if images are missing: a damaged file would name another cache, and a
    sweep would refuse its own data.
    """
    if known is None or not known.exists():
        return None
    content = known.read_text(errors="replace")
    folder = _folder(store, size, content)
    return content if folder.exists() or folder.with_suffix(".building").exists() else None


def _content_key(source: DataSource, size: int, store: Path) -> str:
    """Returns the source's content key: the recorded key if `_known_content` finds it, else new."""
    path = _key_file(source, store)
    known = _known_content(path, size, store)
    if known is not None:
        return known
    content = source.content_key()
    if path is not None:
        make_folder(path.parent)
        # A name of its own, because several processes may write this file at once.
        unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
        write(unfinished, content)
        move(unfinished, path)
    return content


def _decode_all(
    source: DataSource,
    shape: tuple[int, int, int, int],
    building: Path,
    progress: ReportProgress | None,
) -> dict[int, str]:
    """Writes all images to a single .npy file, from the first missing row on.

    Returns the reasons of bad rows, ascending by row.
    """
    num_items, size, *_ = shape
    path, saved = building / "images.npy", building / PROGRESS
    check_no_links(path)
    done, bad = _decoded_before(path, saved, shape)
    # Writes the header only: np.save would need the whole array in memory.
    mode: Literal["r+", "w+"] = "r+" if done else "w+"
    start = np.lib.format.open_memmap(path, mode, np.uint8, shape).offset

    def decode(first: int) -> dict[int, str]:
        rows = range(first, min(first + ROWS_PER_TASK, num_items))
        images, reasons = source.decode(rows, size)
        # Written to the file, not through the memory map: on a full disk `write` raises OSError,
        # while a map would kill the process with SIGBUS.
        with open(path, "r+b", opener=below) as file:
            file.seek(start + num_bytes(first, size))
            file.write(images.tobytes())
        return reasons

    with ThreadPoolExecutor(min(MAX_THREADS, usable_cpus())) as pool:
        # An exception in the loop closes the iterator of `map`, which cancels the other tasks.
        tasks = range(done, num_items, ROWS_PER_TASK)
        for task, reasons in enumerate(pool.map(decode, tasks), 1):
            bad |= reasons
            done = min(done + ROWS_PER_TASK, num_items)
            if task % TASKS_PER_SAVE == 0 or done == num_items:
                # First the images: after a power cut they must not be missing from the file.
                _flush(path)
                with whole_file(saved) as file:
                    file.write(json.dumps((done, bad)).encode())
            if progress is not None:
                progress(done, num_items)
    return bad


def _decoded_before(
    path: Path, saved: Path, shape: tuple[int, int, int, int]
) -> tuple[int, dict[int, str]]:
    """Returns the number of rows decoded by an earlier process (0 if damaged), and its bad rows."""
    try:
        _map_images(path, shape)
        done, reasons = json.loads(saved.read_text(encoding="utf-8"))
        bad = {int(row): str(why) for row, why in reasons.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return 0, {}
    return (done, bad) if done in range(shape[0] + 1) else (0, {})


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _load(folder: Path, shape: tuple[int, int, int, int], content: str) -> CachedImages:
    try:
        images = _map_images(folder / "images.npy", shape)
        bad = _read_bad(folder / "bad.json", len(images))
    except (OSError, ValueError) as error:
        raise StorageError(
            f"the image store {folder} is damaged: {error}; delete it, and it is made again"
        ) from None
    return CachedImages(images, bad, content, folder.name)


def _map_images(path: Path, shape: tuple[int, int, int, int]) -> np.ndarray:
    """Returns a memory map. Raises OSError or ValueError if the file has other or no images."""
    try:
        # Not np.load, which also opens zip files and takes other files for pickles.
        images = np.lib.format.open_memmap(path, mode="r")
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python: TokenError, SyntaxError, ...
        raise ValueError(f"{path.name} is not an array ({error})") from None
    if images.shape != shape or images.dtype != np.uint8 or not images.flags.c_contiguous:
        raise ValueError(f"its images are {images.dtype} {images.shape} instead of uint8 {shape}")
    return images


def _read_bad(path: Path, num_items: int) -> dict[int, str]:
    """Returns the reasons of bad rows. Raises ValueError if the file holds something else."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise ValueError(f"{path.name} holds a {type(raw).__name__} instead of an object")
    bad = {int(row): str(why) for row, why in raw.items()}
    if bad and not 0 <= min(bad) <= max(bad) < num_items:
        raise ValueError(f"{path.name} has rows {min(bad)} to {max(bad)} of {num_items}")
    return bad


def local_copy(folder: Path, node_store: Path) -> Path:
    """Returns the copy of `folder` under `node_store`, created by the node's first process.

    Returns `folder` itself, with a logged warning, if the copy does not fit on the disk, cannot
    be written, or lies where other users may write. A node with a full or broken
    disk then reads from the root instead of failing its trials.
    """
    try:
        node_store.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Resolved before the check: a symbolic link could be redirected after it.
        node_store = node_store.resolve()
        info = node_store.stat()
        if info.st_uid != os.getuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            # Another user could replace the images.
            raise ResourceError(f"another user owns {node_store} or may write to it")
        near = node_store / folder.name
        needed = sum(file.stat().st_size for file in folder.iterdir())
        build_folder(near, needed, partial(_copy, folder))
    except (OSError, ResourceError, StorageError) as error:
        log.warning("images are read from %s, not from storage.node_store: %s", folder, error)
        return folder
    return near


def _copy(folder: Path, building: Path) -> None:
    shutil.copytree(folder, building, dirs_exist_ok=True)
    for file in building.iterdir():
        # Flushed before the rename: after a power cut the name must not exist without the data.
        _flush(file)
