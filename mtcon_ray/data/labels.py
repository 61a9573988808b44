"""The labels of all items, and their checks. No image is read here."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from mtcon_ray.base.metrics import Kind
from mtcon_ray.data.column import Column
from mtcon_ray.data.splits import LEFT_OUT, SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import DataSpec, Split
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

if TYPE_CHECKING:
    from mtcon_ray.data.sources.files import DataSource

# Reasons of bad images in an error message.
MAX_SHOWN = 20


@dataclass(frozen=True)
class LabelTable:
    """The labels of N items. Arrays are shared between tables and must not be written.

    labels[column] is int64 [N], MISSING (-1) where unknown. classes[column] has its class names,
    sorted. In a data set, classes has only the classes of the train and val splits. unseen[column]
    has the names of all other classes, with codes from len(classes[column]) on. No network or probe
    has an output for them.
    multi_hot[name] is uint8 [N, L] of 0 and 1, UNKNOWN_BIT (255) where unknown. Its L names are in
    multi_hot_names[name].
    split is int8 [N], an index into SPLITS, LEFT_OUT (-1) for items without a split, outside of
    data.fraction, or with an unreadable image.
    names are the items' names, such as their image paths.
    groups[data.group_column] is int64 [N], equal for similar items. It is empty without this field.
    """

    names: tuple[str, ...]
    labels: dict[str, np.ndarray]
    classes: dict[str, tuple[str, ...]]
    split: np.ndarray
    multi_hot: dict[str, np.ndarray] = field(default_factory=dict)
    multi_hot_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    split_origin: str = ""  # where the splits come from, in words
    unseen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.split)

    def kind_of(self, name: str) -> Kind:
        """Returns the kind of the labels of this name."""
        return "set" if name in self.multi_hot else "classes"

    def known(self, name: str) -> np.ndarray:
        """Returns a mask of the items with a known label, bool [N].

        A label set is known if any of its bits is known.
        """
        if name in self.multi_hot:
            return np.asarray((self.multi_hot[name] != UNKNOWN_BIT).any(axis=1))
        return np.asarray(self.labels[name] != MISSING)

    def size_of(self, name: str) -> int:
        """Returns the number of classes in train and val, or of labels in a set."""
        return len((self.classes | self.multi_hot_names)[name])

    def rows(self, split: Split) -> np.ndarray:
        """Returns the indices of the items of a split, ascending int64."""
        return np.flatnonzero(self.split == SPLITS.index(split))


def too_many_bad(got: str, reasons: Collection[str], allowed: float, hint: str = "") -> DataError:
    """Returns an error that lists the first MAX_SHOWN reasons. `got` is the count as text."""
    shown = [*islice(reasons, MAX_SHOWN)]
    if len(reasons) > MAX_SHOWN:
        shown.append(f"and {len(reasons) - MAX_SHOWN} more")
    return DataError(
        f"at most {allowed:.2%} of the images may be missing or corrupt (data.max_bad_images), "
        f"got {got}:" + "".join(f"\n  {line}" for line in shown) + hint
    )


def read_table(source: "DataSource") -> LabelTable:
    """Returns checked labels and splits, with held_out_top_k, fraction and label noise applied.

    No image is read. Raises DataError if the labels are not usable.
    """
    spec, table = source.spec, source.read_labels()
    for name, codes in table.labels.items():
        _check_codes(name, codes, (len(table),), range(MISSING, len(table.classes[name])))
    for name, bits in table.multi_hot.items():
        shape = len(table), len(table.multi_hot_names[name])
        _check_codes(name, bits, shape, (0, 1, UNKNOWN_BIT))
    if spec.held_out_top_k is not None:
        for column in spec.held_out:
            if column in table.labels:
                table = _keep_most_frequent(table, column, spec.held_out_top_k)
    table = _code_seen_classes_first(table)
    if spec.fraction < 1:  # after the classes: heads and probes have the same for every fraction
        table = _keep_fraction(table, source.groups, spec)
    _check(table, spec)
    table = replace(table, warnings=(*table.warnings, *_absences(table)))
    # Last, because noise draws from the remaining classes and must not hide bad labels above.
    return add_label_noise(table, spec.label_noise, spec.seed)


def _check_codes(name: str, codes: Any, shape: tuple[int, ...], allowed: Sequence[int]) -> None:
    """Raises DataError unless a source's column is an array of this shape and of these numbers."""
    found, dtype = np.asarray(codes), "uint8" if len(shape) > 1 else "int64"
    if found.dtype != dtype or found.shape != shape or not np.isin(found, allowed).all():
        raise DataError(
            f"read_labels must return {name!r} as integers {list(shape)} from {allowed[0]} to "
            f"{allowed[-1]}, {dtype}, got {found.dtype} {list(found.shape)}: "
            f"{found.tolist()!s:.60}"
        )


def without(table: LabelTable, bad: Mapping[int, str], source: "DataSource") -> LabelTable:
    """Returns the table with bad rows in no split, and with a warning about them.

    Raises DataError if more images are bad than the source tolerates, or if a split or a label is
    then empty.
    """
    if not bad:
        return table
    if len(bad) > source.max_bad_fraction * len(table):
        raise too_many_bad(f"{len(bad)} of {len(table)}", bad.values(), source.max_bad_fraction)
    split = table.split.copy()
    split[list(bad)] = LEFT_OUT
    warning = f"{len(bad)} images cannot be read and are left out, first {next(iter(bad.values()))}"
    table = replace(table, split=split, warnings=(*table.warnings, warning))
    _check(table, source.spec)
    return table


def _keep_most_frequent(table: LabelTable, column: str, num_kept: int) -> LabelTable:
    """Returns a table with the `num_kept` most frequent classes of a column.

    Items of all splits count. Ties go to the class first in name order. Other labels become
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
    """Returns codes where class order[i] of `num_classes` becomes i, any other class MISSING."""
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


def _keep_fraction(table: LabelTable, groups: np.ndarray | None, spec: DataSpec) -> LabelTable:
    """Returns a table with a share `spec.fraction` of the groups in train, at least one group.

    The other training items become LEFT_OUT. The groups of a smaller share are among those of a
    larger share. The choice depends on the seed and the groups in train, not on the order of items.
    """
    train, split = table.rows("train"), table.split.copy()
    column = Column.of(np.array(table.names if groups is None else groups, dtype=object)[train])
    # A random stream of its own: the random splits use the seed alone.
    order = np.random.default_rng([spec.seed, *b"fraction"]).permutation(len(column.texts))
    kept = order[: max(1, round(spec.fraction * len(order)))]
    split[train[~np.isin(column.codes, kept)]] = LEFT_OUT
    share = f"{100 * spec.fraction:g} % of the train groups (data.fraction)"
    return replace(table, split=split, split_origin=f"{table.split_origin}, {share}".lstrip(", "))


def _check(table: LabelTable, spec: DataSpec) -> None:
    """Raises DataError if a split is empty, or a label has no values in a split or is constant."""
    sizes = {split: len(table.rows(split)) for split in SPLITS}
    if empty := [split for split, size in sizes.items() if size == 0]:
        counts = ", ".join(f"{name} {number}" for name, number in sizes.items())
        raise DataError(f"the {empty[0]} split has no images ({counts}); each split needs images")
    for name in (*spec.tasks, *spec.held_out):
        check_label(table, name, ", or raise data.fraction" if spec.fraction < 1 else "")


_WHAT = {"classes": "label column", "set": "label set"}


def check_label(table: LabelTable, name: str, way_out: str = "") -> None:
    """Raises DataError if a label has no values in a split or is constant in the train split.

    `way_out` ends the message of a constant label.
    """
    what, known = f"{_WHAT[table.kind_of(name)]} {name!r}", table.known(name)
    if not known.any():
        raise DataError(f"{what} must have labels, got only empty cells")
    if constant := _constant(table, name):
        raise DataError(
            f"{what} must have different values in the train split, got {constant}; take it out of "
            f"data.tasks and data.held_out{way_out}"
        )
    for split in SPLITS:
        if not known[table.rows(split)].any():
            raise DataError(f"{what} must have labels in the {split} split, got none")


def _constant(table: LabelTable, name: str) -> str:
    """Returns the constant value of a label in the train split in words, "" if it varies."""
    train = table.rows("train")
    rows = train[table.known(name)[train]]
    if not len(rows):
        return "no label"
    if name in table.multi_hot:
        bits = table.multi_hot[name][rows]
        varies = ((bits == 0).any(axis=0) & (bits == 1).any(axis=0)).any()
        return "" if varies else "the same in all items"
    first, *others = np.unique(table.labels[name][rows])
    return "" if others else f"only {table.classes[name][first]!r}"


def _absences(table: LabelTable) -> Iterator[str]:
    """Yields warnings of classes absent from train, and of a set's labels without a positive.

    A label without a positive in val or test counts as 0 in the mAP of the split.
    """
    for name, known in (table.classes | table.multi_hot_names).items():
        names, is_set = (*known, *table.unseen.get(name, ())), name in table.multi_hot
        for split in SPLITS if is_set else SPLITS[:1]:
            values = (table.labels | table.multi_hot)[name][table.rows(split)]
            seen = np.flatnonzero((values == 1).any(axis=0)) if is_set else values
            absent = [names[code] for code in np.setdiff1d(np.arange(len(names)), seen)]
            if not absent:
                continue
            shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
            fault = f"are not in the train split and cannot be predicted ({shown})"
            if split != "train":
                fault = (
                    f"have no positive in the {split} split and count as 0 in its mAP ({shown}); "
                    "leave them out of data.multi_hot, or split otherwise"
                )
            yield (
                f"{_WHAT[table.kind_of(name)]} {name!r}: {len(absent)} of {len(names)} "
                f"{'labels' if is_set else 'classes'} {fault}"
            )


def add_label_noise(table: LabelTable, share_by_task: dict[str, float], seed: int) -> LabelTable:
    """Returns a table where a share of each task's labels in train is redrawn over its K classes.

    This is the experiment with corrupted tasks of MSCon (Mu, Guttag and Makar 2023,
    arXiv:2307.02712, figure 3).

    The original class may be drawn again, so share * (K - 1) / K of the labels change in
    expectation. Missing labels stay missing. Each combination of seed, share and task has its own
    random stream. The noise of a task therefore does not depend on other tasks or splits, as long
    as its classes are the same.
    """
    labels, rows = dict(table.labels), table.rows("train")
    for task, share in share_by_task.items():
        labels[task] = codes = labels[task].copy()
        labelled = rows[codes[rows] != MISSING]
        # A digest as the seed, because Python salts hash() of strings in each process.
        stream = hashlib.sha256(repr(("label noise", seed, share, task, "train")).encode())
        rng = np.random.default_rng(int.from_bytes(stream.digest()[:16], "big"))
        redrawn = rng.permutation(labelled)[: round(share * len(labelled))]
        codes[redrawn] = rng.integers(len(table.classes[task]), size=len(redrawn))
    return replace(table, labels=labels)


def fingerprint(table: LabelTable, content_key: str, size: int) -> str:
    """Returns a hex digest of images, stored size, labels, class names, splits and groups."""
    total = hashlib.sha256(f"{content_key} {size}".encode())
    total.update(table.split.tobytes())
    # Groups and unseen classes only if they exist: other tables' fingerprints must not change.
    for kind in (table.labels, table.multi_hot, table.groups):
        for name in sorted(kind):
            total.update(name.encode() + b"\0" + kind[name].tobytes())
    unseen = [table.unseen] if table.unseen else []
    for names in (table.classes, table.multi_hot_names, *unseen):
        total.update(repr(sorted(names.items())).encode())
    return total.hexdigest()
