"""Download of a mirrored sweep to another root, to resume it there."""

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from mtcon_ray.base.lock import FILE as LOCK
from mtcon_ray.base.lock import driver_lock
from mtcon_ray.base.paths import prepare_root, sweep_folder
from mtcon_ray.base.registry import writable_url
from mtcon_ray.base.root_files import below, make_folder, move, remove, remove_folder
from mtcon_ray.data.remote import MAX_THREADS
from mtcon_ray.errors import DataError, SpecError, StorageError, SweepError
from mtcon_ray.sweep.mirror_objects import LIST, Entry, Files, Objects, first_missing


def is_mirrored(url: str) -> bool:
    """Returns True if a sweep's mirror is at a URL. Raises DataError if the store fails."""
    return bool(Objects(url).read_list())


def restore(url: str, root: Path) -> Path:
    """Downloads the sweep mirrored at a URL and returns its folder below this root.

    Skips the download if a folder of its name has all mirrored lines, as after an earlier call.
    Raises SpecError for an unsuitable URL, DataError if the store fails or has no such mirror,
    SweepError if a folder of this name has other content, and StorageError.
    """
    try:
        url = writable_url(url.rstrip("/"))
    except ValueError as error:
        raise SpecError(f"a mirror's URL {error}") from None
    folder = sweep_folder(root, url.rpartition("/")[2])
    objects = Objects(url)
    files = objects.read_list()
    if not files:
        raise DataError(
            f"no mirror of a sweep found at {url}: it has no {LIST} with files; give "
            "storage.mirror, a slash and the sweep's name"
        )
    if folder.exists():
        if path := first_missing(folder, files):
            raise SweepError(
                f"{folder} holds another sweep, or older files than the mirror at {url}: {path} "
                "differs; give another --root, or remove the folder with `mtcon-ray clean`"
            )
        return folder
    prepare_root(root)
    # No command takes this name for a sweep, so a killed download leaves no incomplete sweep.
    partly = folder.with_name(f".restoring-{folder.name}")
    try:
        make_folder(partly)
        with driver_lock(partly):
            try:
                _clear(partly)
                _download(objects, files, partly)
                move(partly, folder)
            except BaseException:
                remove_folder(partly, ignore_errors=True)
                raise
    except OSError as error:
        raise StorageError.of(folder, error) from error
    return folder


def _clear(folder: Path) -> None:
    """Removes the files of a killed download."""
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            remove_folder(entry)
        elif entry.name != LOCK:
            remove(entry)


def _download(objects: Objects, files: Files, folder: Path) -> None:
    with ThreadPoolExecutor(MAX_THREADS) as pool:
        tasks = [pool.submit(_fetch, objects, folder / n, e) for n, e in files.items()]
        try:
            for task in tasks:
                task.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _fetch(objects: Objects, path: Path, entry: Entry) -> None:
    """Downloads a file. If its object has grown since, only the part named by the state."""
    make_folder(path.parent)
    left, digest = entry.size, sha256()
    with open(path, "wb", opener=below) as file:
        for data in objects.read(entry.object):
            part = data[:left]
            file.write(part)
            digest.update(part)
            left -= len(part)
    if left or digest.hexdigest() != (entry.sha256 or digest.hexdigest()):
        raise DataError(
            f"the content of {objects.url}/{entry.object} differs from {LIST}; try again, because "
            "a driver may be writing it, or restore the object from a backup"
        )
    if entry.mtime_ns is not None:  # the mirror identifies a version by this time
        os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))
