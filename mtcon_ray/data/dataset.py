"""The data set of a spec: checked labels in memory, decoded images as a memory map."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtcon_ray.base.callbacks import SILENT, Callbacks
from mtcon_ray.data.image_cache import Lent, check_room, lent_nothing, open_image_cache
from mtcon_ray.data.labels import LabelTable, fingerprint, read_table, without
from mtcon_ray.data.remote import Found, fetch, look
from mtcon_ray.data.sources import SOURCES, DataSource, DataSpec

IMAGES = "images"  # the only URL field not needed for reading labels


@dataclass(frozen=True)
class Dataset:
    """Images and labels of N items.

    images is uint8 [N, S, S, 3], a read-only memory map. In table, label noise and held_out_top_k
    are already applied, and items with an unreadable image belong to no split.
    fingerprint is a hex digest, different for any two data sets. cache is the name of the images'
    folder in the image cache, or "" if the images are not in a cache.
    """

    images: np.ndarray
    table: LabelTable
    tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str
    cache: str = ""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of classes, or of labels in a set, by task."""
        return {task: self.table.size_of(task) for task in self.tasks}


@dataclass(frozen=True)
class CheckedData:
    """The data of a spec before its images are decoded.

    In table, images known to be unreadable belong to no split. downloads has the number of bytes
    still to be downloaded, by URL. The other fields save `open_dataset` from repeating this work.
    found has the objects at each URL, by spec field. labels are the labels read by source, with all
    images in their splits.
    """

    table: LabelTable
    downloads: dict[str, int]
    found: dict[str, Found]
    source: DataSource
    labels: LabelTable


def open_dataset(
    spec: DataSpec,
    *,
    view_size: int,
    store: Path,
    callbacks: Callbacks = SILENT,
    checked: CheckedData | None = None,
    lent: Lent = lent_nothing,
) -> Dataset:
    """Returns labels and images. Decodes the images into `store` if no process has done so.

    `callbacks` get the numbers of decoded images and of downloaded bytes. `lent` gives decoders of
    other machines. URLs are downloaded below `store` if needed. The contents of `checked` are not
    listed or read again, except for labels if a download has changed the paths of the files.

    Raises DataError if a URL cannot be read, or labels or too many images are unusable,
    ResourceError if the disk is too small or not writable, StorageError if the files of decoded
    images are incomplete or damaged.
    """
    found = checked.found if checked else _find(spec)
    source = _source(spec, fetch(found, store, callbacks.on_download))
    if checked is not None and checked.source.spec == source.spec:
        source, table = checked.source, checked.labels
    else:
        table = read_table(source)
    size = store_size(spec, view_size)
    stored = open_image_cache(source, len(table), size, store, callbacks.on_decode, lent)
    table = without(table, stored.bad, source)
    digest = fingerprint(table, stored.content_key, stored.images.shape[1])
    return Dataset(stored.images, table, spec.tasks, spec.held_out, digest, stored.key)


def open_source(spec: DataSpec, store: Path) -> DataSource:
    """Returns the source of a data section. Downloads URLs below `store` if needed."""
    return _source(spec, fetch(_find(spec), store))


def store_size(spec: DataSpec, view_size: int) -> int:
    """Returns the side of the decoded images in pixels.

    The default is 1.25 times a view's side, but never larger than the images themselves: a crop of
    an enlarged copy has no more detail than a crop of the image, and the copy is blurred.
    """
    if spec.store_size is not None:
        return spec.store_size
    size = round(1.25 * view_size)
    return size if spec.native_size is None else min(size, spec.native_size)


# Results of `check_images` by signature, size and tolerated share. A comparison plans many sweeps
# over the same images, and each check of a .tar.gz decompresses all of it.
_seen: dict[tuple[str | None, int, float], tuple[dict[int, str], str]] = {}


def check_dataset(spec: DataSpec, view_size: int, store: Path) -> CheckedData:
    """Returns the labels of a spec and the sizes of the remaining downloads.

    A CSV in an object store is downloaded, images are not. Images that are not decoded yet are
    checked with `DataSource.check_images`.

    Raises DataError as `read_table` does, and if a URL cannot be read or too many images are bad,
    and ResourceError if the disk has no room for downloads and decoded images.
    """
    found = _find(spec)
    wanted = {n: f for n, f in found.items() if n != IMAGES or f.place(store).exists()}
    source = _source(spec, fetch(wanted, store))
    labels, size = read_table(source), store_size(spec, view_size)
    downloads = {f.url: 0 if f.place(store).exists() else f.num_bytes for f in found.values()}
    signature = source.signature()
    stored = check_room(signature, len(labels), size, store, sum(downloads.values()))
    if stored is None and wanted.keys() == found.keys():  # the images are here
        key = (signature, size, source.max_bad_fraction)
        if key not in _seen or key[0] is None:
            _seen[key] = source.check_images(size)
        bad, warning = _seen[key]
    else:
        bad, warning = stored.bad if stored else {}, ""
    table = without(labels, bad, source)
    if warning:
        table = replace(table, warnings=(*table.warnings, warning))
    return CheckedData(table, downloads, found, source, labels)


def _find(spec: DataSpec) -> dict[str, Found]:
    """Returns the objects at each URL of a spec, by field."""
    return {field: look(url, f"data.{field}") for field, url in spec.urls().items()}


def _source(spec: DataSpec, places: Mapping[str, str]) -> DataSource:
    """Returns the source of a spec's data, with local paths in place of URLs."""
    return SOURCES[spec.kind](spec.model_copy(update=dict(places)))
