"""The data set of a spec: checked labels in memory, decoded images as a memory map."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtcon_ray.data.image_cache import check_room, num_bytes, open_image_cache
from mtcon_ray.data.image_check import CheckedImages, left_out
from mtcon_ray.data.label_noise import add_label_noise
from mtcon_ray.data.remote import fetch, look
from mtcon_ray.data.sources import SOURCES, DataSource, DataSpec, LabelTable
from mtcon_ray.data.sources.base import LEFT_OUT, MISSING, SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.metrics import slugs

IMAGES = "images"  # the one URL field that is not needed for reading labels


@dataclass(frozen=True)
class Dataset:
    """Images and labels of N items.

    images is uint8 [N, S, S, 3], a read-only memory map. In table, label noise and held_out_top_k
    are already applied, and items whose image cannot be read belong to no split.
    fingerprint is a hex digest that differs between any two data sets.
    store is the image store, the directory that also caches sampled triplets; with None each
    process samples its own.
    """

    images: np.ndarray
    table: LabelTable
    tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str
    store: Path | None = None

    @property
    def sizes(self) -> dict[str, int]:
        """Number of classes, of labels in a set, or 1 for a number, by task."""
        return {task: self.table.size_of(task) for task in self.tasks}


def fetch_places(
    spec: DataSpec,
    store: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    images: bool = True,
) -> dict[str, str]:
    """Downloads the data's URLs if needed; returns their local paths by spec field.

    Paths lie below `store`. With `images=False` the images are not downloaded, and their field is
    in the result only if they already are. `progress(done, total)` is called with bytes.

    Raises DataError if a URL cannot be read, ResourceError if the disk is too small or not
    writable.
    """
    found = {field: look(url, f"data.{field}") for field, url in spec.urls().items()}
    wanted = {
        field: f
        for field, f in found.items()
        if images or field != IMAGES or f.place(store).exists()
    }
    fetch(list(wanted.values()), store, progress)
    return {field: str(f.place(store)) for field, f in wanted.items()}


def downloads(spec: DataSpec, store: Path) -> dict[str, int]:
    """Returns the bytes that remain to be downloaded, by URL.

    Raises DataError if a URL cannot be read.
    """
    found = [look(url, f"data.{field}") for field, url in spec.urls().items()]
    return {f.url: 0 if f.place(store).exists() else f.num_bytes for f in found}


def read_table(spec: DataSpec, seed: int, places: Mapping[str, str] | None = None) -> LabelTable:
    """Returns checked labels and splits, with held_out_top_k and label noise applied.

    No image is read. `places` is the result of `fetch_places`.

    Raises DataError if the labels are not usable, SpecError if two columns would have the same
    name in MLflow.
    """
    return _read_table(_source(spec, seed, places))


def open_dataset(
    spec: DataSpec,
    *,
    seed: int,
    view_size: int,
    store: Path,
    progress: Callable[[int, int], None] | None = None,
    places: Mapping[str, str] | None = None,
    node_store: Path | None = None,
) -> Dataset:
    """Returns labels and images; decodes the images into `store` if no process has done so.

    `progress(done, total)` is called with the number of decoded images. `places` is the result of
    `fetch_places`; with None the URLs are resolved and downloaded first. With `node_store` images
    are read from a copy there, which is created once per node.

    Raises DataError if labels or too many images are unusable, SpecError as `read_table` does,
    ResourceError if the disk is too small or not writable.
    """
    source = _source(spec, seed, fetch_places(spec, store) if places is None else places)
    table = _read_table(source)
    size = store_size(spec, view_size)
    stored = open_image_cache(source, len(table), size, store, progress, node_store)
    table = _without(table, stored.bad, spec)
    fingerprint = _fingerprint(table, stored.content_key, stored.images.shape[1])
    return Dataset(stored.images, table, spec.tasks, spec.held_out, fingerprint, store)


def store_size(spec: DataSpec, view_size: int) -> int:
    """Returns the side of the decoded images in pixels; by default 1.25 times a view's side."""
    return spec.store_size or round(1.25 * view_size)


def store_bytes(num_items: int, spec: DataSpec, view_size: int) -> int:
    """Returns the size of the decoded images on disk, bytes."""
    return num_bytes(num_items, store_size(spec, view_size))


def check_dataset(
    spec: DataSpec, view_size: int, store: Path, places: Mapping[str, str] | None = None
) -> tuple[LabelTable, dict[str, int]]:
    """Returns the labels, and the bytes that remain to be downloaded by URL.

    Images that are known to be unreadable belong to no split. Images that are not decoded yet are
    checked with `DataSource.check_images`. `places` is the result of `fetch_places`.

    Raises DataError and SpecError as `read_table` does, DataError if too many images are bad, and
    ResourceError if the disk has no room for downloads and decoded images.
    """
    source = _source(spec, spec.seed, places)
    table, asked, size = _read_table(source), downloads(spec, store), store_size(spec, view_size)
    stored = check_room(source, len(table), size, store, sum(asked.values()))
    checked = _looked_at(source, size) if stored is None else CheckedImages(stored.bad)
    table = _without(table, checked.bad, spec)
    if checked.warning:
        table = replace(table, warnings=(*table.warnings, checked.warning))
    return table, asked


def _without(table: LabelTable, bad: Mapping[int, str], spec: DataSpec) -> LabelTable:
    """Returns the table with bad rows in no split, and with a warning about them.

    Raises DataError if a split or a label is then empty.
    """
    if not bad:
        return table
    split = table.split.copy()
    split[list(bad)] = LEFT_OUT
    table = replace(table, split=split, warnings=(*table.warnings, left_out(bad.values())))
    _check(table, spec)
    return table


# Results of `check_images` by signature, size and tolerated share. A comparison plans many sweeps
# over the same images, and each check of a .tar.gz decompresses all of it.
_seen: dict[tuple[str, int, float], CheckedImages] = {}


def _looked_at(source: DataSource, size: int) -> CheckedImages:
    """Returns `source.check_images(size)`, cached in this process while no image changes."""
    signature = source.signature()
    if signature is None:
        return source.check_images(size)
    key = (signature, size, source.max_bad_fraction)
    if key not in _seen:
        _seen[key] = source.check_images(size)
    return _seen[key]


def _source(spec: DataSpec, seed: int, places: Mapping[str, str] | None) -> DataSource:
    return SOURCES[spec.kind](spec.model_copy(update=dict(places or {})), seed)


def _read_table(source: DataSource) -> LabelTable:
    spec = source.spec
    slugs((*spec.tasks, *spec.held_out))
    table = source.read_labels()
    if spec.held_out_top_k is not None:
        for column in spec.held_out:
            if column in table.labels:
                table = _keep_most_frequent(table, column, spec.held_out_top_k)
    table = _code_seen_classes_first(table)
    _check(table, spec)
    table = replace(
        table, warnings=(*table.warnings, *_unseen_classes(table), *_test_classes(table))
    )
    # Last, because noise draws from the classes that remain and must not hide bad labels above.
    return add_label_noise(table, spec.label_noise, spec.label_noise_splits, source.seed)


def _keep_most_frequent(table: LabelTable, column: str, num_kept: int) -> LabelTable:
    """Returns a table with the `num_kept` most frequent classes of a column.

    Items of all splits count; ties go to the class first in name order. Other labels become
    MISSING.
    """
    codes, classes = table.labels[column], table.classes[column]
    counts = np.bincount(codes[codes != MISSING], minlength=len(classes))
    kept = np.sort(np.argsort(-counts, kind="stable")[:num_kept])
    new_code = np.full(len(classes) + 1, MISSING)  # MISSING is -1 and indexes the last entry
    new_code[kept] = np.arange(len(kept))
    return replace(
        table,
        labels=table.labels | {column: new_code[codes]},
        classes=table.classes | {column: tuple(classes[code] for code in kept)},
    )


def _code_seen_classes_first(table: LabelTable) -> LabelTable:
    """Moves classes without items in train and val to `unseen`, with codes after all others.

    The sizes of heads and probes, and therefore all training, then do not depend on test labels.
    Columns without such classes keep their codes.
    """
    labels, classes, unseen = dict(table.labels), dict(table.classes), {}
    rows = np.concatenate([table.rows("train"), table.rows("val")])
    for column, names in table.classes.items():
        codes = labels[column]
        is_seen = np.isin(np.arange(len(names)), codes[rows])
        if is_seen.all():
            continue
        order = np.argsort(~is_seen, kind="stable")
        new_code = np.full(len(names) + 1, MISSING)  # MISSING is -1 and indexes the last entry
        new_code[order] = np.arange(len(names))
        labels[column] = new_code[codes]
        classes[column] = tuple(name for name, seen in zip(names, is_seen, strict=True) if seen)
        unseen[column] = tuple(name for name, seen in zip(names, is_seen, strict=True) if not seen)
    return replace(table, labels=labels, classes=classes, unseen=unseen)


def _check(table: LabelTable, spec: DataSpec) -> None:
    """Raises DataError if a split is empty, or a label has no values in one or does not vary."""
    for split in SPLITS:
        if len(table.rows(split)) == 0:
            counts = ", ".join(f"{name} {len(table.rows(name))}" for name in SPLITS)
            raise DataError(f"each split must have images, got none in {split} ({counts})")
    for name in (*spec.tasks, *spec.held_out):
        what = f"{_WHAT[table.kind_of(name)]} {name!r}"
        known = table.known(name)
        if not known.any():
            raise DataError(f"{what} must have labels, got only empty cells")
        _check_varies(table, name, what)
        for split in SPLITS:
            if not known[table.rows(split)].any():
                raise DataError(f"{what} must have labels in the {split} split, got none")


_WHAT = {"classes": "label column", "set": "label set", "number": "column of numbers"}


def _check_varies(table: LabelTable, name: str, what: str) -> None:
    """Raises DataError if a label is constant in the train split."""
    train = table.rows("train")
    values = train[table.known(name)[train]]
    way_out = "take it out of data.tasks and data.held_out"
    match table.kind_of(name):
        case "classes":
            rule, found = "at least two classes", np.unique(table.labels[name][values])
            got = f"only {table.classes[name][found[0]]!r}" if len(found) else "no label"
            varies = len(found) > 1
        case "set":
            rule, bits = "a label that varies", table.multi_hot[name][values]
            varies = bool(((bits == 0).any(axis=0) & (bits == 1).any(axis=0)).any())
            got = "the same in all items" if len(bits) else "no label"
        case _:
            rule, found = "two different numbers", np.unique(table.continuous[name][values])
            varies = len(found) > 1
            got = f"only {found[0]:g}" if len(found) else "no number"
    if not varies:
        raise DataError(f"{what} must have {rule} in the train split, got {got}; {way_out}")


def _unseen_classes(table: LabelTable) -> list[str]:
    """Returns a warning for each column or set with classes or labels absent from train."""
    train = table.rows("train")
    warnings = []
    for name, classes in (table.classes | table.multi_hot_names).items():
        if name in table.labels:
            seen = set(table.labels[name][train].tolist())
        else:
            seen = set(np.flatnonzero((table.multi_hot[name][train] == 1).any(axis=0)).tolist())
        unseen = [label for code, label in enumerate(classes) if code not in seen]
        if unseen:
            shown = ", ".join(unseen[:5]) + (", ..." if len(unseen) > 5 else "")
            kind = "classes" if name in table.labels else "labels"
            warnings.append(
                f"{_WHAT[table.kind_of(name)]} {name!r}: {len(unseen)} of {len(classes)} {kind} "
                f"are not in the train split and cannot be predicted ({shown})"
            )
    return warnings


def _test_classes(table: LabelTable) -> list[str]:
    """Returns a warning for each column with classes that only the test split has."""
    warnings = []
    for column, names in table.unseen.items():
        codes = table.labels[column][table.rows("test")] - table.size_of(column)
        counts = np.bincount(codes[codes >= 0], minlength=len(names))
        only = [name for name, count in zip(names, counts, strict=True) if count]
        if only:
            shown = ", ".join(only[:5]) + (", ..." if len(only) > 5 else "")
            warnings.append(
                f"label column {column!r}: {len(only)} classes are only in the test split, whose "
                f"{counts.sum()} items with them count as errors ({shown})"
            )
    return warnings


def _fingerprint(table: LabelTable, content_key: str, size: int) -> str:
    """Returns a hex digest of images, stored size, labels, class names and splits."""
    total = hashlib.sha256(f"{content_key} {size}".encode())
    total.update(table.split.tobytes())
    for kind in (table.labels, table.multi_hot, table.continuous):
        for name in sorted(kind):
            total.update(name.encode() + b"\0" + kind[name].tobytes())
    total.update(repr(sorted(table.classes.items())).encode())
    total.update(repr(sorted(table.multi_hot_names.items())).encode())
    # Only if there are any: tables without unseen classes keep the fingerprint of earlier versions.
    if table.unseen:
        total.update(repr(sorted(table.unseen.items())).encode())
    return total.hexdigest()
