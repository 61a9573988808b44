"""Rows of a CSV file as text: its encoding, separator and quotes, and the cells of each row.

Rows are numbered as a spreadsheet shows them: the header is row 1, and a cell that holds line ends
belongs to one row. Python's module `csv` took half the time of pandas and a third of its memory
for a million rows, and it does not fill up rows that lack cells.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_END, BufferedReader, TextIOWrapper
from itertools import chain, islice
from pathlib import Path

import numpy as np

from mtcon_ray.data.image_files import IMAGE_ENDINGS
from mtcon_ray.errors import DataError
from mtcon_ray.regular_file import open_regular

SEPARATORS = (",", ";", "\t")
# Bounds on files that are no tables, such as a sparse file: these would fill the memory.
MAX_TABLE_BYTES = 4 * 2**30
MAX_LINE = 50_000_000
MAX_COLUMNS = 30_000
BLOCK = 4096  # rows whose equal cells share one text
HEAD = 100  # lines in which the header must end
PACKED = {".gz", ".bz2", ".zip", ".xz", ".zst", ".tar", ".tgz"}
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# The first line that Excel understands as the name of the separator.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n?', re.IGNORECASE)
JSON_START = re.compile(r'\s*([{\[]\s*$|\{\s*["}]|\[\s*[\[{])')


class _RowError(DataError):
    """A row that does not fit the header. Another reading of the quotes may make it fit."""


@dataclass(frozen=True)
class Rows:
    """Cells by column, each object [N] of str, and the row number of each item, int64 [N]."""

    header: list[str]
    columns: list[np.ndarray]
    numbers: np.ndarray
    warnings: tuple[str, ...]


def read_rows(path: Path) -> Rows:
    """Returns a CSV's rows without those whose cells are all empty.

    Quotes are read as CSV has them. If a row does not fit then, each line is read as a row in which
    a lone quote is a character like any other. Texts in TSV files often have such quotes.

    Raises DataError if a row does not have the header's cells or the file is no CSV, and OSError if
    the file cannot be read.
    """
    if path.suffix.lower() in PACKED:
        raise DataError(
            f"{path} must be a table that is not compressed, got the ending {path.suffix}; unpack "
            "the file and name the unpacked one"
        )
    try:
        try:
            return _read(path, quoted=True)
        except _RowError as error:
            try:
                return _read(path, quoted=False)
            except _RowError:
                raise error from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be UTF-8 text, got {error}; save a table of another program as 'CSV "
            "UTF-8' there"
        ) from None


def _read(path: Path, *, quoted: bool) -> Rows:
    with _opened(path) as (text, is_ended):
        lines = _lines(path, text)
        first = next(lines, "")
        _refuse_others(path, first)
        if given := SEPARATOR_LINE.fullmatch(first):
            first = next(lines, "")
        head = [first, *islice(lines, HEAD)]
        separator = given[1] if given else _separator(head)
        lines = chain(head, lines)
        warnings: list[str] = []
        if quoted:
            rows = _quoted_rows(path, lines, separator, warnings)
        else:
            rows = _literal_rows(path, lines, separator, is_ended)
        header = next(rows)
        if not any(header) or len(header) > MAX_COLUMNS:
            raise DataError(
                f"{path} must have a header of 1 to {MAX_COLUMNS:,} columns in its first row, got "
                f"{len(header):,} columns" + ("" if any(header) else " without a name")
            )
        columns, numbers = _collect(path, rows, header)
    if len(numbers) == 0:
        raise DataError(f"{path} must have rows below its header, got none")
    kept = _named_columns(path, header, columns)
    if not is_ended:
        warnings += _cut_end(header[-1], columns[-1], int(numbers[-1]))
    return Rows([header[i] for i in kept], [columns[i] for i in kept], numbers, tuple(warnings))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TextIOWrapper, bool]]:
    """Yields a file's text, and True if its last line is ended."""
    with open_regular(path, MAX_TABLE_BYTES) as file:
        mark, tail = file.read(2), _tail(file)
        encoding = "utf-16" if mark in UTF_16_MARKS else "utf-8-sig"
        with TextIOWrapper(file, encoding=encoding) as text:
            yield text, tail.strip(b"\0")[-1:] in (b"\n", b"\r")


def _tail(file: BufferedReader) -> bytes:
    """Returns the last two bytes, and goes back to the start."""
    file.seek(-min(2, file.seek(0, SEEK_END)), SEEK_END)
    tail = file.read()
    file.seek(0)
    return tail


def _lines(path: Path, text: TextIOWrapper) -> Iterator[str]:
    """Yields lines with their ends. Raises DataError for a longer one than MAX_LINE."""
    while line := text.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise DataError(f"{path} must have lines of less than {MAX_LINE:,} characters")
        yield line


def _refuse_others(path: Path, first: str) -> None:
    """Raises DataError if the first line is not that of a CSV."""
    if not first:
        raise DataError(f"{path} must have a header and rows, got an empty file")
    if "\0" in first:
        raise DataError(
            f"{path} must be UTF-8 text, got null bytes, as in UTF-16 without a byte order mark; "
            "save a table of another program as 'CSV UTF-8' there"
        )
    if JSON_START.match(first):
        raise DataError(
            f"{path} must be a CSV or a Parquet file, got JSON; convert it, for example by "
            "`pandas.read_json(FILE).to_csv('labels.csv', index=False)`, with lines=True if each "
            "line is an object"
        )


def _separator(head: Sequence[str]) -> str:
    """Returns the separator that gives most header cells; separators in quotes do not count."""

    def width(separator: str) -> int:
        try:
            return len(next(csv.reader(head, delimiter=separator, strict=True)))
        except csv.Error:  # a quoted cell does not fit this separator
            return 0

    return max(SEPARATORS, key=lambda separator: (width(separator), head[0].count(separator)))


def _quoted_rows(
    path: Path, lines: Iterator[str], separator: str, warnings: list[str]
) -> Iterator[list[str]]:
    """Yields the cells of each row. Raises _RowError where a quote seems to have joined rows.

    Adds a warning to `warnings` where that is doubtful.
    """
    reader = csv.reader(lines, delimiter=separator, strict=True)
    number = num_inner = width = 0
    try:
        for row in reader:
            number += 1
            width = width or len(row)
            if reader.line_num - number > num_inner:
                num_inner = reader.line_num - number
                found = [line.split(separator) for line in separator.join(row).split("\n")]
                if all(len(cells) == width for cells in found):
                    what = (
                        f"{len(found)} lines in a quoted cell of row {number}, each with as many "
                        "cells as the header"
                    )
                    if separator == "\t" or _are_rows(found):
                        raise _RowError(
                            f"{path} must have a row in each line, got {what}; remove the quote at "
                            "the start of the cell, or double it and put quotes around the cell"
                        )
                    warnings[:] = warnings or [f"{path} has {what}: check that it is one row"]
            yield row
    except csv.Error as error:
        what = "a cell that begins with a quote and does not end with one"
        if "field limit" in str(error):
            what = f"a cell of more than {csv.field_size_limit():,} characters"
        raise _RowError(
            f"{path} must have quotes at both ends of a quoted cell, got {what} in row "
            f"{number + 1}; the file may be cut, or else double all quotes in the cell and put "
            "quotes around it"
        ) from None


def _are_rows(lines: list[list[str]]) -> bool:
    """Returns True if some column has names of images in all lines of one quoted cell."""
    return any(
        all(cell.lower().endswith(IMAGE_ENDINGS) for cell in cells)
        for cells in zip(*lines, strict=True)
    )


def _literal_rows(
    path: Path, lines: Iterator[str], separator: str, is_ended: bool
) -> Iterator[list[str]]:
    """Yields the cells of each line; quotes are removed from a cell that has them at both ends."""
    row: list[str] = []
    for line in lines:
        row = line.rstrip("\n").split(separator)
        if '"' in line:
            row = [_unquoted(cell) for cell in row]
        yield row
    if not is_ended and row and row[-1].startswith('"'):
        raise _RowError(f"{path} must end with a whole row")  # `read_rows` shows the first error


def _unquoted(cell: str) -> str:
    if len(cell) > 1 and cell[0] == cell[-1] == '"':
        return cell[1:-1].replace('""', '"')
    return cell


def _collect(
    path: Path, rows: Iterator[list[str]], header: list[str]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Returns the columns and the row numbers. Raises _RowError for a row that does not fit."""
    width, number = len(header), 1
    parts: list[list[np.ndarray]] = [[] for _ in header]
    numbers: list[int] = []
    while block := list(islice(rows, BLOCK)):
        kept = []
        for place, row in enumerate(block):
            if any(row):
                if len(row) != width:
                    is_last = place + 1 == len(block) and next(rows, None) is None
                    row = _fitted(path, row, header, number + place + 1, is_last)
                kept.append(row)
                numbers.append(number + place + 1)
        number += len(block)
        for part, cells in zip(parts, zip(*kept, strict=True), strict=False):
            known: dict[str, str] = {}
            part.append(np.array([*map(known.setdefault, cells, cells)], dtype=object))
    columns = [np.concatenate(part) for part in parts if part]
    return columns, np.array(numbers, dtype=np.int64)


def _fitted(path: Path, row: list[str], header: list[str], number: int, is_last: bool) -> list[str]:
    """Returns a row with as many cells as the header.

    Only empty cells are removed at its end, and added only in columns without a name. Raises
    _RowError for any other row.
    """
    width = len(header)
    if len(row) > width and not any(row[width:]):
        return row[:width]
    if len(row) < width and not any(header[len(row) :]):
        return row + [""] * (width - len(row))
    if len(row) > width:
        advice = "put quotes around a cell that holds the separator"
    elif is_last:
        advice = "this is the last row, so the file may be cut: get the whole file"
    else:
        advice = "add the empty cells at the end of the row"
    raise _RowError(
        f"{path} must have rows with as many cells as its header, separated by commas, semicolons "
        f"or tabs, got {len(row)} cells in place of {width} in row {number}; {advice}"
    )


def _named_columns(path: Path, header: list[str], columns: list[np.ndarray]) -> list[int]:
    """Returns the places of the columns, without those that have neither a name nor a cell.

    One column may have no name, as pandas writes the index of a table.

    Raises DataError for several columns of one name, or without one.
    """
    kept = [i for i, name in enumerate(header) if name or any(columns[i])]
    unnamed = [str(i + 1) for i in kept if not header[i]]
    if len(unnamed) > 1:
        places = f"{', '.join(unnamed[:-1][:20])} and {unnamed[-1]}"
        raise DataError(
            f"the columns of {path} must have names, but columns {places} have no name; name them "
            "in the first row, or empty their cells"
        )
    twice = [name for name, count in Counter(header[i] for i in kept).items() if count > 1]
    if twice:
        raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
    return kept


def _cut_end(name: str, cells: np.ndarray, number: int) -> list[str]:
    """Returns a warning if the last cell of a file seems to be the beginning of another one's text.

    Many whole files lack the last line end, so that alone is no reason.
    """
    last, counts = cells[-1], Counter(cells[:-1].tolist())
    longer = [text for text, count in counts.most_common() if count > 1 and text.startswith(last)]
    if last in counts or not longer:
        return []
    return [
        f"column {name!r} holds {last!r} in row {number} alone, where the file ends without a line "
        f"end: it may be cut from {longer[0]!r}; end the file with a line end if it is whole"
    ]
