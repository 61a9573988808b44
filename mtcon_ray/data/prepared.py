"""The prepared data set of a sweep, which is all that its trials read of the data.

<store>/<key>/images.npy            decoded images, see data/image_cache.py
<store>/sets/<fingerprint>/         labels, splits and names of a data set
    labels.npz   names.json

With a root in an object store each node downloads these folders once.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from mtcon_ray.base.paths import stored_url
from mtcon_ray.base.root_files import below, remove_folder, write
from mtcon_ray.data.dataset import Dataset, store_size
from mtcon_ray.data.disk import build_folder, damage
from mtcon_ray.data.image_cache import map_images
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.objects import Objects, patiently
from mtcon_ray.errors import StorageError
from mtcon_ray.spec.data.base import DataSpec

SETS, SETS_TAG = "sets", "mtcon.data_sets"  # a folder of the store, and a tag of the sweep
ARRAYS = ("labels", "multi_hot", "groups")
NAMES = ("names", "classes", "multi_hot_names", "warnings", "split_origin", "unseen")
WEIGHTS = "weights"  # a folder of a sweep in an object store, see `models/encoders/base.py`
# Folder of images and fingerprint of each prepared data set, by `data_key`.
Sets = Mapping[str, tuple[str, str]]
DIGEST = re.compile("[0-9a-f]{32,64}")
UNUSED_SECONDS = 30 * 86_400


def data_key(spec: DataSpec, view_size: int) -> str:
    """Returns a text that is equal for specs with the same data set."""
    text = f"{store_size(spec, view_size)} {spec.model_dump_json()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def keep_set(dataset: Dataset, store: Path) -> None:
    """Writes the labels of a data set to the store, unless it has them.

    With a root in an object store also uploads its folders. Raises ResourceError and StorageError.
    """
    table, folder = dataset.table, store / SETS / dataset.fingerprint

    def fill(building: Path) -> None:
        arrays = {f"{kind}/{k}": v for kind in ARRAYS for k, v in getattr(table, kind).items()}
        with open(building / "labels.npz", "wb", opener=below) as file:
            np.savez(file, split=table.split, **arrays)
        write(building / "names.json", json.dumps({name: getattr(table, name) for name in NAMES}))

    build_folder(folder, 0, fill)
    for each in (folder, store / dataset.cache):
        upload_folder(each)


def open_set(spec: DataSpec, store: Path, cache: str, fingerprint: str) -> Dataset:
    """Returns a data set kept by `keep_set`, with its images in the folder `cache`.

    Downloads its folders if this node lacks them. Raises StorageError if they are damaged, and
    ResourceError if the disk is too small.
    """
    if not all(map(DIGEST.fullmatch, (cache, fingerprint))):  # they may come from another's log
        raise StorageError(f"data sets have hexadecimal names, got {cache!r}, {fingerprint!r}")
    folder = store / SETS / fingerprint
    for each in (folder, store / cache):
        fetch_folder(each)
    with damage("the data set", folder):
        text = (folder / "names.json").read_text(encoding="utf-8")
        fields: dict[str, Any] = {kind: {} for kind in ARRAYS}
        fields |= json.loads(text, object_hook=_with_tuples)
        with np.load(folder / "labels.npz", allow_pickle=False) as file:
            for key in file.files:
                kind, _, column = key.partition("/")
                if column:
                    fields[kind][column] = file[key]
            table = LabelTable(**fields, split=file["split"])
    images = map_images(store / cache, len(table))
    return Dataset(images, table, spec.tasks, spec.held_out, fingerprint, cache=cache)


def _with_tuples(section: dict[str, Any]) -> dict[str, Any]:
    """Returns an object of JSON with tuples in place of lists."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in section.items()}


def upload_folder(folder: Path) -> None:
    """Uploads a folder of the store, whose files never change. Existing files stay.

    Does nothing for a root on a path. Raises StorageError.
    """
    if url := stored_url(folder):
        objects = Objects(url)
        there = {name: info.size for name, info in objects.list().items()}
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = file.relative_to(folder).as_posix()
            if file.suffix != ".lock" and there.get(name) != file.stat().st_size:
                objects.write(name, file)


def fetch_folder(folder: Path, *, must: bool = True) -> None:
    """Downloads a folder of the store once per node, while other processes wait.

    Does nothing for a root on a path. With `must` raises StorageError if the store lacks the
    folder. Raises StorageError, or ResourceError if the disk is full.
    """
    if (url := stored_url(folder)) is None:
        return
    if folder.exists():
        os.utime(folder)  # see `discard_unused`
        return
    objects = Objects(url)
    if not (found := patiently(objects.list)):
        if not must:
            return
        raise StorageError(f"{url} is not there; resume the sweep where its data are, to upload it")

    def fill(building: Path) -> None:
        wanted = {name: (building / name, info.size) for name, info in found.items()}
        patiently(lambda: objects.fetch(wanted))

    build_folder(folder, sum(info.size for info in found.values()), fill)


def discard_unused(root: Path) -> None:
    """Removes what was unused for 30 days from the local copy of a root in an object store.

    These are images, downloads, data sets, embeddings, and folders of trials.
    """
    if not stored_url(root):
        return
    oldest, inner = time.time() - UNUSED_SECONDS, (SETS, "remote", "embeddings")
    folders = [f for name in ("", *inner) for f in root.glob(f"store/{name}/*/")]
    for folder in (*folders, *root.glob("running/*/")):
        with suppress(FileNotFoundError):  # another process has removed it
            is_kept = folder.name in (*inner, "weights", "keys")
            if not is_kept and folder.stat().st_mtime < oldest:
                remove_folder(folder, ignore_errors=True)
