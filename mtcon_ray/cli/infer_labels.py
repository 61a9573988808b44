"""Inference of the labels among the columns of a table: classes, label sets and numbers.

A column is given by its texts: the number of its cells with each text, without empty cells.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mtcon_ray.data.cells import MINUS_ONE, are_decimals, are_whole, as_bits, parts_of, separator_of
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.data.table_file import MAX_BITS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import MAX_LABELS
from mtcon_ray.spec.data.own import LIST_SEPARATOR
from mtcon_ray.spec.problem import MISSING

Texts = Mapping[str, int]

MAX_CLASSES = 100
# Columns with fewer rows per class are labels only if nothing else is.
LEAST_ROWS_PER_CLASS, LEAST_REPEATS = 5, 2
HELD_OUT_CLASSES = 20
# More whole numbers such as 12.0 in a column are numbers, fewer are classes.
MAX_WHOLE = 20
MANY_BITS = 8
# Columns with more texts are not looked at as bits.
MAX_BIT_TEXTS = 20
NUM_SHOWN = 8
BY_HAND = (
    "a label has two classes or more that repeat; to write a spec by hand, also for training "
    "without labels, start from `mtcon-ray init --synthetic` and the page 'Your own data'"
)


class LabelSet(NamedTuple):
    """Columns of bits or a column of lists, and the number of labels."""

    columns: tuple[str, ...] | str
    size: int


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The label columns. `classes` has the number of classes of each."""

    classes: dict[str, int]
    held_out: tuple[str, ...]
    sets: dict[str, LabelSet]
    separator: str
    continuous: tuple[str, ...]
    remarks: tuple[str, ...]
    """What the user should check."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Labels to train on: classes and lists, or else bits, or else numbers."""
        classes = [column for column in self.classes if column not in self.held_out]
        lists = [name for name, found in self.sets.items() if isinstance(found.columns, str)]
        return (*classes, *lists) or tuple(self.sets) or self.continuous

    @property
    def used(self) -> set[str]:
        """The columns used as labels in the spec."""
        sets = [s.columns for s in self.sets.values()]
        columns = [c for found in sets for c in ([found] if isinstance(found, str) else found)]
        return {*self.classes, *columns, *self.continuous}

    def size_of(self, label: str) -> str:
        """Returns the number of classes or labels in words."""
        if label in self.sets:
            return f"{self.sets[label].size} labels"
        return f"{self.classes[label]} classes" if label in self.classes else "numbers"


@dataclass(frozen=True, kw_only=True)
class Inferred(Labels, ABC):
    """Columns by their probable roles."""

    name: str
    image_column: str
    num_rows: int
    num_train: int
    unused: tuple[str, ...]

    @property
    @abstractmethod
    def place(self) -> str:
        """Folder or file of the images."""

    @abstractmethod
    def findings(self) -> dict[str, str]:
        """Returns the findings for a particular kind of data, by title."""

    def describe(self) -> list[str]:
        """Returns a line per finding, for the user to check."""
        offered = [name for name in self.sets if name not in self.tasks]
        rows = {
            "images": f"{self.image_column!r}, {self.num_rows:,} rows, in {self.place}",
            "tasks": self._sized(self.tasks),
            "held out": self._sized(self.held_out),
            **self.findings(),
            "sets": self._sized(offered),
            "numbers": some(self.continuous),
            "not used": some(self.unused),
        }
        remarks = [f"{'check':<11}{remark}" for remark in self.remarks]
        return [f"{what:<11}{text}" for what, text in rows.items() if text] + remarks

    def _sized(self, labels: Collection[str]) -> str:
        return ", ".join(
            f"{label} ({self.classes.get(label) or self.size_of(label)})" for label in labels
        )


def some(columns: Collection[str]) -> str:
    """Returns the first of many columns, separated by commas."""
    return f"{', '.join([*columns][:NUM_SHOWN])}{' ...' * (len(columns) > NUM_SHOWN)}"


@dataclass(frozen=True)
class Guess:
    """Columns that may be labels, before their splits are known.

    `classes` has the number of classes, of `unlikely` columns too.
    """

    classes: dict[str, int]
    unlikely: dict[str, str]
    """Columns of many classes, or of few rows per class, in words."""
    sets: dict[str, LabelSet]
    separator: str
    continuous: tuple[str, ...]
    remarks: tuple[str, ...]

    def spec_fields(self) -> dict[str, Any]:
        """Returns the spec fields with which all columns can be read.

        Raises DataError for more columns than a spec can name.
        """
        tasks = (*self.classes, *self.sets)
        for what, columns in (("labels", tasks), ("numbers", self.continuous)):
            if len(columns) > MAX_LABELS:
                raise DataError(
                    f"a table for `init` must have at most {MAX_LABELS:,} columns that may be "
                    f"{what}, got {len(columns):,}; give it a copy without the others"
                )
        return {
            "tasks": tasks,
            "multi_hot": {name: found.columns for name, found in self.sets.items()},
            "multi_hot_separator": self.separator,
        }

    def choose(self, table: LabelTable) -> Labels | None:
        """Returns the learnable columns of a table with these fields, None without any.

        Unlikely columns are chosen if no others exist.
        """
        classes = {c: n for c, n in self.classes.items() if can_be_learnt(table, c)}
        sets = {name: found for name, found in self.sets.items() if can_be_learnt(table, name)}
        likely = {c: n for c, n in classes.items() if c not in self.unlikely}
        chosen = likely or ({} if sets else classes)
        remarks = list(self.remarks)
        for column, why in self.unlikely.items():
            if column in chosen:
                remarks.append(f"column {column!r} has {why}: is it a label?")
            elif column in classes:
                use = "put its name into tasks or held_out to use it as a label"
                remarks.append(f"column {column!r} has {why}: {use}")
        if not (chosen or sets or self.continuous):
            return None
        return Labels(
            classes=chosen,
            held_out=_held_out(chosen),
            sets=sets,
            separator=self.separator,
            continuous=self.continuous,
            remarks=tuple(remarks),
        )


def guess_labels(
    columns: Mapping[str, Texts],
    *,
    certain: Collection[str] = (),
    floats: Collection[str] = (),
    separator: str | None = None,
) -> Guess:
    """Returns the probable kind of each column.

    `certain` columns are known to be classes, `floats` to be numbers.
    Lists are separated by `separator`, or by the separator of the first column of lists.
    """
    lists = {c: found for c, texts in columns.items() if (found := _lists(texts))}
    separator = separator or next(iter(lists.values()), LIST_SEPARATOR)
    remarks = [
        f"column {c!r} has lists with {own!r} between the names, but multi_hot_separator is "
        f"{separator!r}: write all lists alike to use the column as a label set"
        for c, own in lists.items()
        if own != separator
    ]
    sets = {
        c: LabelSet(c, len(_names(columns[c], separator)))
        for c, own in lists.items()
        if own == separator
    }
    remarks += [
        f"column {c!r} has lists of {found.size:,} names: is it a label set?"
        for c, found in sets.items()
        if found.size > MAX_CLASSES
    ]
    bits, with_both = _columns_of_bits(columns)
    uncertain = [repr(c) for c in with_both if c not in floats]
    if len(bits) >= MANY_BITS:
        name = "attributes"
        while name in columns:
            name += "_"
        sets[name] = LabelSet(bits, len(bits))
    if uncertain:
        remarks.append(
            f"-1 is a class of its own beside 0 in {some(uncertain)}: empty its "
            "cells if it means uncertain or unknown"
        )
    in_sets = {*sets, *(bits if len(bits) >= MANY_BITS else ())}
    others = {c: texts for c, texts in columns.items() if c not in in_sets}
    numbers = [c for c, texts in others.items() if _is_measure(texts, c in floats)]
    classes = {
        c: len(texts)
        for c, texts in others.items()
        if c not in numbers and (c in certain or _repeats(texts, LEAST_REPEATS))
    }
    unlikely = {
        c: f"{n:,} classes with {sum(columns[c].values()) / n:.1f} rows each on average"
        for c, n in classes.items()
        if c not in certain and (n > MAX_CLASSES or not _repeats(columns[c], LEAST_ROWS_PER_CLASS))
    }
    continuous = tuple(c for c in numbers if len(columns[c]) > 1)
    return Guess(classes, unlikely, sets, separator, continuous, tuple(remarks))


def _columns_of_bits(columns: Mapping[str, Texts]) -> tuple[tuple[str, ...], list[str]]:
    """Returns the columns of bits of one convention, and the columns with both 0 and -1."""
    plain: list[str] = []
    celeba: list[str] = []
    uncertain: list[str] = []
    for column, texts in columns.items():
        if len(texts) > MAX_BIT_TEXTS:
            continue
        found = set(as_bits(np.array([*texts], dtype=object)).tolist())
        if found == {0, 1}:
            plain.append(column)
        elif found == {MINUS_ONE, 1}:
            celeba.append(column)
        elif {0, MINUS_ONE} <= found <= {0, 1, MINUS_ONE}:
            uncertain.append(column)
    return tuple(plain if len(plain) >= len(celeba) else celeba), uncertain


def _lists(texts: Texts) -> str | None:
    """Returns the separator of a column of lists if its names repeat, else None.

    None also for a column refused by `read_lists` for its size.
    """
    separator = separator_of(texts)
    if separator is None:
        return None
    count = sum(n * len(parts_of(text, separator)) for text, n in texts.items())
    num_names = len(_names(texts, separator))
    is_large = num_names * sum(texts.values()) > MAX_BITS
    return None if is_large or count < LEAST_ROWS_PER_CLASS * num_names else separator


def _names(texts: Texts, separator: str) -> set[str]:
    return {name for text in texts for name in parts_of(text, separator)}


def _repeats(texts: Texts, least: int) -> bool:
    return len(texts) >= 2 and sum(texts.values()) >= least * len(texts)


def _is_measure(texts: Texts, is_float: bool) -> bool:
    """Returns True for numbers with a decimal point. Many different integers may be identifiers.

    pandas writes few whole classes such as 1.0, too, if some cells are empty.
    """
    is_class = len(texts) <= MAX_WHOLE and are_whole(texts)
    return is_float or (bool(texts) and are_decimals(texts) and not is_class)


def can_be_learnt(table: LabelTable, label: str) -> bool:
    """Returns True if each split has labels, and the train split two classes."""
    known = table.known(label)
    if not all(known[table.rows(split)].any() for split in SPLITS):
        return False
    train = table.rows("train")
    if label in table.multi_hot:
        bits = table.multi_hot[label][train]
        return bool(((bits == 0).any(axis=0) & (bits == 1).any(axis=0)).any())
    return len({*np.unique(table.labels[label][train])} - {MISSING}) > 1


def _held_out(classes: dict[str, int]) -> tuple[str, ...]:
    """Returns the label with most classes if it has many and other labels exist."""
    most = max(classes, key=classes.__getitem__, default="")
    return (most,) if len(classes) > 1 and classes[most] > HELD_OUT_CLASSES else ()
