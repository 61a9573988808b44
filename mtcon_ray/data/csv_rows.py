"""Rows of a CSV file as text: its encoding, separator and quotes, and the cells of each row.

Rows are numbered as in a spreadsheet. The header is row 1, and a cell with line ends belongs to one
row. Python's module `csv` does not fill up short rows, as pandas does.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from io import TextIOWrapper
from itertools import chain, compress, islice
from pathlib import Path
from typing import TextIO

import numpy as np

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.column import Column, ColumnBuilder
from mtcon_ray.data.image_names import IMAGE_ENDINGS
from mtcon_ray.errors import DataError

SEPARATORS = (",", ";", "\t")
# Without these bounds a sparse file, for example, would fill the memory.
MAX_TABLE_BYTES = 4 * 2**30
MAX_COLUMNS = 10_000  # `init` looks at each: 0.8 ms
MAX_LINE = 4_000_000  # characters
PART = 10_000  # rows
HEAD = 20  # lines, in which the header must end
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A first line by which Excel names the separator.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n?', re.IGNORECASE)
JSON_START = re.compile(r'\s*([{\[]\s*$|\{\s*["}]|\[\s*[\[{])')


def read_rows(path: Path) -> tuple[dict[str, Column], np.ndarray, tuple[str, ...]]:
    """Returns a CSV's columns by name, row numbers, int64 [N], and warnings.

    Rows with only empty cells are left out.

    Raises DataError for a row without the header's cells, for a quoted cell that probably holds
    rows, or for a file of another format. Raises OSError for an unreadable file.
    """
    with open_regular(path, MAX_TABLE_BYTES) as file:
        encoding = "utf-16" if file.read(2) in UTF_16_MARKS else "utf-8-sig"
        file.seek(0)
        try:
            with TextIOWrapper(file, encoding=encoding) as text:
                return _Reader(path, text).read()
        except UnicodeError as error:
            raise DataError(
                f"{path} must be UTF-8 text, got {error}; unpack a compressed file, get a damaged "
                "file again, and save a table of another program as 'CSV UTF-8' there"
            ) from None


class _Reader:
    """Reads a CSV in parts of PART rows, so that no cell is kept as an object of its own."""

    def __init__(self, path: Path, text: TextIO) -> None:
        self.path, self._text = path, text
        self._is_ended, self._num_rows, self._width = True, 0, 0
        self._doubts: list[str] = []
        lines = self._lines()
        if not (head := [*islice(lines, HEAD + 1)]):
            raise DataError(f"{self.path} is empty; a table has a header and rows")
        if given := SEPARATOR_LINE.fullmatch(head[0]):
            head = head[1:] or [""]
        self._separator = given[1] if given else _separator(head)
        self._rows = csv.reader(chain(head, lines), delimiter=self._separator, strict=True)

    def read(self) -> tuple[dict[str, Column], np.ndarray, tuple[str, ...]]:
        """Returns the columns, row numbers and warnings as `read_rows` does."""
        [header] = self._part(1)
        if not any(header) or self._width > MAX_COLUMNS:
            raise DataError(
                f"{self.path} must have a header of 1 to {MAX_COLUMNS:,} columns in its first row, "
                f"got {self._width:,} columns" + ("" if any(header) else " without a name")
            )
        builders, is_filled = [ColumnBuilder() for _ in header], list[bool]()
        while part := self._part(PART):
            part = self._fitted(part, header)
            is_filled += map(any, part)
            rows = compress(part, is_filled[-len(part) :])
            for builder, cells in zip(builders, zip(*rows, strict=True), strict=False):
                builder.add(cells)
        numbers = np.flatnonzero(is_filled) + 2
        if not len(numbers):
            raise DataError(f"{self.path} has no rows below its header")
        columns = [builder.column() for builder in builders]
        if not self._is_ended:
            self._doubts += _cut_end(header[-1], columns[-1], numbers[-1])
        return _named(self.path, header, columns), numbers, (*self._doubts,)

    def _lines(self) -> Iterator[str]:
        """Yields the lines, each with its end. Raises DataError if a CSV cannot have them."""
        for number, line in enumerate(iter(partial(self._text.readline, MAX_LINE), ""), 1):
            if "\0" in line:
                raise UnicodeError(f"a null byte in line {number}, as in UTF-16 without a BOM")
            if len(line) == MAX_LINE:
                raise DataError(
                    f"{self.path} must have lines of fewer than {MAX_LINE:,} characters, got "
                    f"more in line {number}; the file may be damaged"
                )
            if number == 1 and JSON_START.match(line):
                raise DataError(
                    f"{self.path} must be a CSV, got JSON; convert it, for example by "
                    "`pandas.read_json(FILE).to_csv('labels.csv', index=False)`, "
                    "with lines=True if each line is an object"
                )
            self._is_ended = line.endswith("\n")
            yield line

    def _part(self, most: int) -> list[list[str]]:
        """Returns the next rows. Raises DataError for a quote without an end, or rows in a cell."""
        rows: list[list[str]] = []
        num_lines = self._rows.line_num
        try:
            rows.extend(islice(self._rows, most))
        except csv.Error as error:
            what = "a cell has a quote at its start and no quote at its end"
            if "field limit" in str(error):
                what = f"a cell has more than {csv.field_size_limit():,} characters"
            raise DataError(
                f"{self.path} cannot be read: {what} in row {self._num_rows + len(rows) + 1}; the "
                "file may be cut, or else double all quotes in the cell and put quotes around it"
            ) from None
        self._width = self._width or len(rows[0])  # the header's
        if self._rows.line_num - num_lines > len(rows):
            self._check_lines(rows)
        self._num_rows += len(rows)
        return rows

    def _check_lines(self, rows: Sequence[Sequence[str]]) -> None:
        """Notes the first cell with possible rows as lines. Raises DataError for likely rows."""
        for number, row in enumerate(rows, self._num_rows + 1):
            lines = [line.split(self._separator) for line in self._separator.join(row).split("\n")]
            if len(lines) == 1 or any(len(cells) != self._width for cells in lines):
                continue
            cell = f"a quoted cell of row {number}"
            what = f"{len(lines)} lines in {cell}, each with as many cells as the header"
            columns = zip(*lines, strict=True)
            has_images = any(all(c.lower().endswith(IMAGE_ENDINGS) for c in col) for col in columns)
            if self._separator == "\t" or has_images:
                raise DataError(
                    f"{self.path} has {what}: these lines are probably rows; remove the quote at "
                    "the start of the cell, or double it and put quotes around the cell"
                )
            self._doubts = self._doubts or [f"{self.path} has {what}: check whether it is one row"]

    def _fitted(self, part: list[list[str]], header: list[str]) -> list[list[str]]:
        """Returns rows with as many cells as the header.

        A row may have further empty cells, and missing cells count as empty in columns without a
        name. Raises DataError for a row that does not fit.
        """
        width = self._width
        if {*map(len, part)} == {width}:
            return part
        for number, row in enumerate(part, self._num_rows - len(part) + 1):
            if any(row) and len(row) != width and (any(row[width:]) or any(header[len(row) :])):
                is_last = not any(map(any, [*part[part.index(row) + 1 :], *self._part(PART)]))
                raise _misfit(self.path, row, width, number, is_last)
        return [(row + [""] * width)[:width] for row in part]


def _separator(head: Sequence[str]) -> str:
    """Returns the separator with most header cells. Separators in quotes do not count."""

    def width(separator: str) -> int:
        try:
            return len(next(csv.reader(head, delimiter=separator, strict=True)))
        except csv.Error:  # a quoted cell does not fit this separator
            return 0

    return max(SEPARATORS, key=lambda separator: (width(separator), head[0].count(separator)))


def _misfit(path: Path, row: list[str], width: int, number: int, is_last: bool) -> DataError:
    if len(row) > width:
        advice = "put quotes around a cell that holds the separator"
    elif is_last:
        advice = "this is the last row, so the file may be cut: get the whole file"
    else:
        advice = "add the empty cells at the end of the row"
    return DataError(
        f"{path} must have rows with as many cells as its header, separated by commas, semicolons "
        f"or tabs, got {len(row)} cells in place of {width} in row {number}; {advice}"
    )


def _named(path: Path, header: Sequence[str], columns: Sequence[Column]) -> dict[str, Column]:
    """Returns the columns with a name or with a cell, by name.

    One column may have no name, because pandas writes the index of a table without a name.

    Raises DataError for several columns without a name or with the same name.
    """
    known = enumerate(zip(header, columns, strict=True), 1)
    kept = {place: (name, column) for place, (name, column) in known if name or column.counts}
    unnamed = [str(place) for place, (name, _) in kept.items() if not name]
    if len(unnamed) > 1:
        raise DataError(
            f"the columns of {path} must have names, but columns {', '.join(unnamed[:20])} have no "
            "name; name them in the first row, or empty their cells"
        )
    [(name, times)] = Counter(name for name, _ in kept.values()).most_common(1)
    if times > 1:
        raise DataError(f"columns of {path} must have different names, got {name!r} twice")
    return dict(kept.values())


def _cut_end(name: str, column: Column, number: int) -> list[str]:
    """Returns a warning if the last cell of a file may be cut.

    Its text must occur nowhere else, and a text of several cells must begin with it. Many whole
    files lack the last line end too.
    """
    last, counts = column.texts[column.codes[-1]], column.counts
    longer = [text for text, times in counts.most_common() if times > 1 and text.startswith(last)]
    if not longer or (column.codes == column.codes[-1]).sum() > 1:
        return []
    return [
        f"column {name!r} holds {last!r} in row {number} alone, where the file ends without a line "
        f"end: it may be cut from {longer[0]!r}; end the file with a line end if it is whole"
    ]
