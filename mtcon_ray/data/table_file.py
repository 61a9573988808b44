"""Tables as columns of strings. Errors number rows as a spreadsheet does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mtcon_ray.data import cells as meaning
from mtcon_ray.data.column import Column
from mtcon_ray.data.csv_rows import read_rows
from mtcon_ray.data.image_names import CONVERSION, ROW_ENDINGS
from mtcon_ray.data.text_file import read_attributes
from mtcon_ray.errors import DataError, nearest
from mtcon_ray.spec.problem import UNKNOWN_BIT

# Rows times names of a column of lists. Each bit takes a byte.
MAX_BITS = 10**9


@dataclass(frozen=True)
class TableFile:
    """Columns of text by name.

    rows[i] is the row number of item i in the file. The header is row 1. `warnings` apply to the
    file as a whole.
    """

    path: Path
    columns: dict[str, Column]
    rows: np.ndarray
    warnings: tuple[str, ...] = ()

    def column(self, name: str, field: str = "") -> Column:
        """Returns a column.

        Raises DataError if the column is absent, with the spec field that names it, if given.
        """
        if name not in self.columns:
            raise DataError(
                f"{self.path} must have the column {name!r}{field and f' ({field})'}"
                f"{nearest(name, self.columns)}"
            )
        return self.columns[name]

    def refuse(self, bad: np.ndarray, column: str, rule: str) -> None:
        """Raises DataError for the first item, if any, where `bad`, bool [N], is True.

        `rule` completes the sentence "column ... must".
        """
        if bad.any():
            item = int(np.flatnonzero(bad)[0])
            others = int(bad.sum()) - 1
            raise DataError(
                f"column {column!r} of {self.path} must {rule}, got "
                f"{self.columns[column].cells[item]!r} in row {self.rows[item]}"
                + (f" and {others} more such rows" if others else "")
            )


def read_table_file(path: Path, what: str = "a table") -> TableFile:
    """Returns the columns of a CSV as text. Rows with only empty cells are left out.

    `what` is the file in messages.

    Raises DataError if the file cannot be read, is not a CSV, or has no rows or a repeated column.
    """
    if path.suffix.lower() in ROW_ENDINGS:
        raise DataError(f"{path} must be a CSV, got a Parquet or Arrow file; {CONVERSION}")
    try:
        return TableFile(path, *read_rows(path))
    except OSError as error:
        raise DataError(f"cannot read {what} {path}: {error.strerror}") from None


def join_attributes(table: TableFile, images: Column, path: Path) -> TableFile:
    """Returns the table with a column added for each attribute of a file in CelebA's format.

    `images` are the table's image paths, matched by file name. Images absent from the file get "".
    Raises DataError as `read_attributes` does, and if an attribute has the name of a column, or the
    file has an image twice.
    """
    names, values = read_attributes(path)
    row_of = {name: row for row, name in enumerate(names)}
    if twice := [name for row, name in enumerate(names) if row_of[name] != row]:
        raise DataError(f"{path} must list an image once, got {twice[0]!r} twice")
    if taken := sorted(table.columns.keys() & values.keys()):
        raise DataError(f"{path} must name other attributes than columns, got {taken[0]!r}")
    # The row -1 of an absent image is the added last entry.
    rows = images.mapped(lambda i: row_of.get(i, row_of.get(i.rpartition("/")[2], -1)), int)
    found = {n: Column.of([*map(str, v.tolist()), ""]).rows(rows) for n, v in values.items()}
    absent = table.rows[rows == -1]
    told = (f"{path} lacks {len(absent)} images, the first: row {i}" for i in absent[:1])
    return replace(table, columns=table.columns | found, warnings=(*table.warnings, *told))


def encode_classes(column: Column) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns each cell's class index, int64 [N], MISSING where empty, and sorted class names."""
    num_empty = int("" in column.texts[:1])  # "" comes first, and becomes MISSING, -1
    return column.codes.astype(np.int64) - num_empty, (*column.texts[num_empty:],)


def read_bits(table: TableFile, columns: Sequence[str]) -> np.ndarray:
    """Returns L columns of yes and no as `bit_of` reads them: uint8 [N, L] of 0 and 1.

    UNKNOWN_BIT where empty. -1 is 0 where no column of the set holds 0, as in CelebA.

    Raises DataError if a column is absent or holds other values, or if the set holds both 0 and -1.
    """
    bits = np.empty((len(table.rows), len(columns)), dtype=np.uint8)
    for place, column in enumerate(columns):
        bits[:, place] = table.column(column).mapped(meaning.bit_of, np.uint8)
        rule = "hold 0 and 1, -1 and 1, true and false, yes and no, or nothing"
        table.refuse(bits[:, place] == meaning.NO_BIT, column, rule)
    with_no = np.flatnonzero((bits == 0).any(axis=0))
    for place, column in enumerate(columns if len(with_no) else ()):
        # CheXpert and MIMIC-CXR write -1 for an uncertain finding: read as 0, it would be a label.
        rule = f"not hold -1 where column {columns[with_no[0]]!r} of the set holds 0 (empty a cell "
        rule += "of -1 if its label is uncertain, write 0 if it is no)"
        table.refuse(bits[:, place] == meaning.MINUS_ONE, column, rule)
    bits[bits == meaning.MINUS_ONE] = 0
    return bits


def read_lists(table: TableFile, column: str, separator: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns a column of lists such as `red|shiny` as bits, uint8 [N, L], and the L sorted names.

    The bits of a cell without names are UNKNOWN_BIT.

    Raises DataError if the column is absent, has lists in brackets or more than MAX_BITS.
    """
    cells = table.column(column)
    printed = cells.mapped(lambda text: meaning.is_printed_list(text, separator), bool)
    table.refuse(printed, column, f"hold names with {separator!r} between them and no brackets")
    lists = [meaning.parts_of(text, separator) for text in cells.texts]
    names = tuple(sorted({part for parts in lists for part in parts}))
    if len(names) * len(cells) > MAX_BITS:
        raise DataError(
            f"column {column!r} of {table.path} must hold lists of at most "
            f"{MAX_BITS // len(cells):,} different names in {len(cells):,} rows, got "
            f"{len(names):,}; keep the frequent names"
        )
    place = {name: index for index, name in enumerate(names)}
    bits = np.zeros((len(lists), len(names)), dtype=np.uint8)
    for row, parts in zip(bits, lists, strict=True):
        row[[place[part] for part in parts]] = 1
    bits[[not parts for parts in lists]] = UNKNOWN_BIT
    return bits[cells.codes], names
