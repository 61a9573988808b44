"""Inference of the labels among the columns of a table: classes and label sets.

A column is given by its texts: the number of its cells with each text, without empty cells.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from mtcon_ray.data.cells import MINUS_ONE, bit_of, is_printed_list, parts_of
from mtcon_ray.data.labels import LabelTable, check_label
from mtcon_ray.data.sources.table import TableSource
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import MAX_LABELS
from mtcon_ray.spec.data.own import LIST_SEPARATOR, SEPARATORS, TableSpec

Texts = Mapping[str, int]

DECIMAL = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
# Columns with fewer rows per class, or known for a smaller share of a split, are no labels.
LEAST_ROWS_PER_CLASS, LEAST_SHARE = 5, 0.01
# More whole numbers such as 12.0 in a column are measures, fewer are classes.
MAX_WHOLE = 20
MANY_BITS = 8
# Columns with more texts are not looked at as bits.
MAX_BIT_TEXTS = 20
BY_HAND = (
    "a label has two classes or more that repeat, and no decimals (write classes of their ranges "
    "into the table); to write a spec by hand, also for training without labels, start from "
    "`mtcon-ray init --synthetic` and the page 'Your own data'"
)


class Labels(NamedTuple):
    """The label columns by kind. `classes` has the number of classes of each column.

    `sets` has the columns of bits or the column of lists of each label set.
    """

    classes: dict[str, int]
    sets: dict[str, list[str] | str]
    separator: str

    @property
    def tasks(self) -> tuple[str, ...]:
        """Labels to train on: classes and lists, or else bits."""
        lists = [name for name, found in self.sets.items() if isinstance(found, str)]
        return (*self.classes, *lists) or tuple(self.sets)

    @property
    def used(self) -> set[str]:
        """The columns used as labels in the spec."""
        columns = {*self.classes}
        for found in self.sets.values():
            columns.update([found] if isinstance(found, str) else found)
        return columns

    @property
    def spec_fields(self) -> dict[str, Any]:
        """The fields of a spec's section `data` for these labels."""
        fields: dict[str, Any] = {"tasks": [*self.tasks], "held_out": []}
        if self.sets:
            fields["multi_hot"] = self.sets
        if self.separator != LIST_SEPARATOR:
            fields["multi_hot_separator"] = self.separator
        return fields

    def read(self, fields: Mapping[str, Any], file: TableFile) -> tuple[LabelTable, "Labels"]:
        """Reads a table with these fields and all labels. Returns it and the learnable labels.

        Raises DataError if no column of the file is such a label, or if they are more than a spec
        can name.
        """
        tasks = (*self.classes, *self.sets)
        if len(tasks) > MAX_LABELS:
            raise DataError(
                f"a table for `init` must have at most {MAX_LABELS:,} columns that may be labels, "
                f"got {len(tasks):,}; give it a copy without the others"
            )
        own = {"tasks": tasks, "multi_hot": self.sets, "multi_hot_separator": self.separator}
        table = TableSource(TableSpec.model_validate({**fields, **own})).read_labels()
        classes = {c: n for c, n in self.classes.items() if can_be_learnt(table, c)}
        sets = {name: found for name, found in self.sets.items() if can_be_learnt(table, name)}
        found = self._replace(classes=classes, sets=sets)
        if not found.used:
            raise DataError(
                f"{file.path} must have a column that can be a label, got columns "
                f"{', '.join(file.columns)}; {BY_HAND}"
            )
        return table, found


def guess_labels(columns: Mapping[str, Texts]) -> Labels:
    """Returns the probable kind of each column, before the splits are known.

    Lists are separated by the separator of the first column of lists.
    """
    lists = {c: found for c, texts in columns.items() if (found := separator_of(texts))}
    separator = next(iter(lists.values()), LIST_SEPARATOR)
    sets: dict[str, list[str] | str] = {c: c for c, own in lists.items() if own == separator}
    if bits := _columns_of_bits(columns):
        sets["attributes_" if "attributes" in columns else "attributes"] = bits
    rest = {c: texts for c, texts in columns.items() if c not in (*sets, *bits)}
    classes = {c: len(t) for c, t in rest.items() if _repeats(t) and not _is_measure(t)}
    return Labels(classes, sets, separator)


def _columns_of_bits(columns: Mapping[str, Texts]) -> list[str]:
    """Returns the columns of 0 and 1, or of -1 and 1 if there are more of them, [] if few."""
    few = {c: texts for c, texts in columns.items() if len(texts) <= MAX_BIT_TEXTS}
    codes = {c: {*map(bit_of, texts)} for c, texts in few.items()}
    found = ([c for c in codes if codes[c] == pair] for pair in ({0, 1}, {MINUS_ONE, 1}))
    most = max(found, key=len)
    return most if len(most) >= MANY_BITS else []


def separator_of(texts: Texts) -> str | None:
    """Returns the separator of a column of lists, such as | for Mass|Edema, else None.

    Such a column has at most as many different names as different lists, and its names repeat.
    Names of classes with a comma, sentences, lists in brackets, and numbers with a decimal comma
    are not lists.
    """
    for separator in SEPARATORS:
        if not any(separator in text for text in texts):
            continue
        if any(is_printed_list(text, separator) for text in texts):
            return None
        lists = {text: parts_of(text, separator) for text in texts}
        names = {name for parts in lists.values() for name in parts}
        is_decimal_comma = separator == "," and all(map(str.isdecimal, names))
        if 2 <= len(names) <= len(texts) and not is_decimal_comma:
            count = sum(number * len(lists[text]) for text, number in texts.items())
            return separator if count >= LEAST_ROWS_PER_CLASS * len(names) else None
    return None


def _repeats(texts: Texts) -> bool:
    return len(texts) >= 2 and sum(texts.values()) >= LEAST_ROWS_PER_CLASS * len(texts)


def _is_measure(texts: Texts) -> bool:
    """Returns True for numbers, some of them with a decimal point.

    Many different integers may be identifiers. pandas writes few whole classes such as 1.0, too, if
    some cells are empty.
    """
    if not any("." in text for text in texts) or not all(map(DECIMAL.fullmatch, texts)):
        return False
    return len(texts) > MAX_WHOLE or not all(float(text).is_integer() for text in texts)


def can_be_learnt(table: LabelTable, label: str) -> bool:
    """Returns True if each split has labels, and the train split two classes.

    Labels of less than 1 % of train or val are left out, because a probe of some of the items may
    have none of them.
    """
    try:
        check_label(table, label)
    except DataError:
        return False
    return all(table.known(label)[table.rows(s)].mean() >= LEAST_SHARE for s in ("train", "val"))
