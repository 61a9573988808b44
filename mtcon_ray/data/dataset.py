"""The data set of a spec: checked labels in memory, decoded images as a memory map."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtcon_ray.data.batch import MISSING
from mtcon_ray.data.image_cache import check_room, num_bytes, open_image_cache
from mtcon_ray.data.label_noise import add_label_noise
from mtcon_ray.data.remote import Found, fetch, look
from mtcon_ray.data.sources import SOURCES, DataSource, DataSpec, LabelTable
from mtcon_ray.data.sources.base import CheckedImages
from mtcon_ray.data.splits import LEFT_OUT, SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.metrics import slugs

IMAGES = "images"  # the one URL field that is not needed for reading labels


@dataclass(frozen=True)
class Dataset:
    """Images and labels of N items.

    images is uint8 [N, S, S, 3], a read-only memory map. In table, label noise and held_out_top_k
    are already applied, and items whose image cannot be read belong to no split.
    fingerprint is a hex digest that differs between any two data sets.
    """

    images: np.ndarray
    table: LabelTable
    tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    fingerprint: str

    @property
    def sizes(self) -> dict[str, int]:
        """Number of classes, of labels in a set, or 1 for a number, by task."""
        return {task: self.table.size_of(task) for task in self.tasks}


@dataclass(frozen=True)
class CheckedData:
    """The data of a spec before its images are decoded.

    In table, images that are known to be unreadable belong to no split. downloads has the bytes
    that remain to be downloaded, by URL. The other fields save `fetch_places` and `open_dataset`
    the same work: found has the objects at each URL, by spec field; labels are those that source
    reads, with all images in their splits.
    """

    table: LabelTable
    downloads: dict[str, int]
    found: dict[str, Found]
    source: DataSource
    labels: LabelTable


def fetch_places(
    spec: DataSpec,
    store: Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    found: Mapping[str, Found] | None = None,
    images: bool = True,
) -> dict[str, str]:
    """Downloads the data's URLs if needed; returns their local paths by spec field.

    Paths lie below `store`. `found` are the objects at the URLs; with None they are listed. With
    `images=False` the images are not downloaded, and their field is in the result only if they
    already are. `progress(done, total)` is called with bytes.

    Raises DataError if a URL cannot be read, ResourceError if the disk is too small or not
    writable.
    """
    wanted = {
        field: f
        for field, f in (_find(spec) if found is None else found).items()
        if images or field != IMAGES or f.place(store).exists()
    }
    fetch(list(wanted.values()), store, progress)
    return {field: str(f.place(store)) for field, f in wanted.items()}


def open_dataset(
    spec: DataSpec,
    *,
    view_size: int,
    store: Path,
    progress: Callable[[int, int], None] | None = None,
    places: Mapping[str, str] | None = None,
    checked: CheckedData | None = None,
    node_store: Path | None = None,
) -> Dataset:
    """Returns labels and images; decodes the images into `store` if no process has done so.

    `progress(done, total)` is called with the number of decoded images. `places` is the result of
    `fetch_places`; with None the URLs are resolved and downloaded first. Labels that `checked` has
    are not read again, unless a download has changed the paths of the files. With `node_store`
    images are read from a copy there, which is created once per node.

    Raises DataError if labels or too many images are unusable, SpecError as `read_table` does,
    ResourceError if the disk is too small or not writable.
    """
    source = _source(spec, fetch_places(spec, store) if places is None else places)
    if checked is not None and checked.source.spec == source.spec:
        source, table = checked.source, checked.labels
    else:
        table = read_table(source)
    stored = open_image_cache(
        source, len(table), store_size(spec, view_size), store, progress, node_store
    )
    table = _without(table, stored.bad, spec)
    fingerprint = _fingerprint(table, stored.content_key, stored.images.shape[1])
    return Dataset(stored.images, table, spec.tasks, spec.held_out, fingerprint)


def store_size(spec: DataSpec, view_size: int) -> int:
    """Returns the side of the decoded images in pixels; by default 1.25 times a view's side."""
    return spec.store_size or round(1.25 * view_size)


def store_bytes(num_items: int, spec: DataSpec, view_size: int) -> int:
    """Returns the size of the decoded images on disk, bytes."""
    return num_bytes(num_items, store_size(spec, view_size))


def check_dataset(spec: DataSpec, view_size: int, store: Path) -> CheckedData:
    """Returns the labels of a spec, and the sizes of what remains to be downloaded.

    A CSV in an object store is downloaded, images are not. Images that are not decoded yet are
    checked with `DataSource.check_images`.

    Raises DataError and SpecError as `read_table` does, DataError if a URL cannot be read or too
    many images are bad, and ResourceError if the disk has no room for downloads and decoded images.
    """
    found = _find(spec)
    source = _source(spec, fetch_places(spec, store, found=found, images=False))
    labels, size = read_table(source), store_size(spec, view_size)
    downloads = {f.url: 0 if f.place(store).exists() else f.num_bytes for f in found.values()}
    stored = check_room(source, len(labels), size, store, sum(downloads.values()))
    checked = _checked_images(source, size) if stored is None else CheckedImages(stored.bad)
    table = _without(labels, checked.bad, spec)
    if checked.warning:
        table = replace(table, warnings=(*table.warnings, checked.warning))
    return CheckedData(table, downloads, found, source, labels)


def _find(spec: DataSpec) -> dict[str, Found]:
    """Returns the objects at each URL of a spec, by field."""
    return {field: look(url, f"data.{field}") for field, url in spec.urls().items()}


def _source(spec: DataSpec, places: Mapping[str, str]) -> DataSource:
    """Returns the source of a spec's data, with local paths in place of URLs."""
    return SOURCES[spec.kind](spec.model_copy(update=dict(places)))


def _without(table: LabelTable, bad: Mapping[int, str], spec: DataSpec) -> LabelTable:
    """Returns the table with bad rows in no split, and with a warning about them.

    Raises DataError if a split or a label is then empty.
    """
    if not bad:
        return table
    split = table.split.copy()
    split[list(bad)] = LEFT_OUT
    warning = f"{len(bad)} images cannot be read and are left out, first {next(iter(bad.values()))}"
    table = replace(table, split=split, warnings=(*table.warnings, warning))
    _check(table, spec)
    return table


# Results of `check_images` by signature, size and tolerated share. A comparison plans many sweeps
# over the same images, and each check of a .tar.gz decompresses all of it.
_seen: dict[tuple[str | None, int, float], CheckedImages] = {}


def _checked_images(source: DataSource, size: int) -> CheckedImages:
    """Returns `source.check_images(size)`, cached in this process while no image changes."""
    key = (source.signature(), size, source.max_bad_fraction)
    if key not in _seen or key[0] is None:
        _seen[key] = source.check_images(size)
    return _seen[key]


def read_table(source: DataSource) -> LabelTable:
    """Returns checked labels and splits, with held_out_top_k and label noise applied.

    No image is read. Raises DataError if the labels are not usable, SpecError if two columns would
    have the same name in MLflow.
    """
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
    return add_label_noise(table, spec.label_noise, spec.label_noise_splits, spec.seed)


def _keep_most_frequent(table: LabelTable, column: str, num_kept: int) -> LabelTable:
    """Returns a table with the `num_kept` most frequent classes of a column.

    Items of all splits count; ties go to the class first in name order. Other labels become
    MISSING.
    """
    codes, classes = table.labels[column], table.classes[column]
    counts = np.bincount(codes[codes != MISSING], minlength=len(classes))
    kept = np.sort(np.argsort(-counts, kind="stable")[:num_kept])
    return replace(
        table,
        labels=table.labels | {column: _recode(codes, kept, len(classes))},
        classes=table.classes | {column: tuple(classes[code] for code in kept)},
    )


def _recode(codes: np.ndarray, order: np.ndarray, num_classes: int) -> np.ndarray:
    """Returns codes where class order[i] of `num_classes` becomes i, and all others MISSING."""
    new_code = np.full(num_classes + 1, MISSING)  # MISSING is -1 and indexes the last entry
    new_code[order] = np.arange(len(order))
    return np.asarray(new_code[codes])


def _code_seen_classes_first(table: LabelTable) -> LabelTable:
    """Moves classes without items in train and val to `unseen`, with codes after all others.

    The sizes of heads and probes, and therefore all training, then do not depend on test labels.
    Columns without such classes keep their codes.
    """
    labels, classes, unseen = dict(table.labels), dict(table.classes), {}
    rows = np.concatenate([table.rows("train"), table.rows("val")])
    for column, names in table.classes.items():
        is_seen = np.isin(np.arange(len(names)), labels[column][rows])
        if is_seen.all():
            continue
        order = np.argsort(~is_seen, kind="stable")
        labels[column] = _recode(labels[column], order, len(names))
        ordered, num_seen = [names[code] for code in order], is_seen.sum()
        classes[column], unseen[column] = tuple(ordered[:num_seen]), tuple(ordered[num_seen:])
    return replace(table, labels=labels, classes=classes, unseen=unseen)


def _check(table: LabelTable, spec: DataSpec) -> None:
    """Raises DataError if a split is empty, or a label has no values in one or does not vary."""
    sizes = {split: len(table.rows(split)) for split in SPLITS}
    for split, size in sizes.items():
        if size == 0:
            counts = ", ".join(f"{name} {number}" for name, number in sizes.items())
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
            kind, seen = "classes", table.labels[name][train]
        else:
            kind, seen = "labels", np.flatnonzero((table.multi_hot[name][train] == 1).any(axis=0))
        unseen = [classes[code] for code in np.setdiff1d(np.arange(len(classes)), seen)]
        if unseen:
            warnings.append(
                f"{_WHAT[table.kind_of(name)]} {name!r}: {len(unseen)} of {len(classes)} {kind} "
                f"are not in the train split and cannot be predicted ({_first(unseen)})"
            )
    return warnings


def _test_classes(table: LabelTable) -> list[str]:
    """Returns a warning for each column with classes that only the test split has."""
    warnings = []
    for column, names in table.unseen.items():
        codes = table.labels[column][table.rows("test")] - table.size_of(column)
        found, counts = np.unique(codes[codes >= 0], return_counts=True)
        if len(found):
            warnings.append(
                f"label column {column!r}: {len(found)} classes are only in the test split, whose "
                f"{counts.sum()} items with them count as errors "
                f"({_first([names[code] for code in found])})"
            )
    return warnings


def _first(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


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
