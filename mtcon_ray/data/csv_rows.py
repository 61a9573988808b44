"""Rows of a CSV file as text: its encoding, separator and quotes, and the cells of each row.

Rows are numbered as in a spreadsheet. The header is row 1, and a cell with line ends belongs to one
row. Python's module `csv` does not fill up short rows, as pandas does.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import SEEK_END, TextIOWrapper
from itertools import chain, dropwhile, islice
from pathlib import Path

import numpy as np

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.image_names import IMAGE_ENDINGS
from mtcon_ray.errors import DataError

SEPARATORS = (",", ";", "\t")
# Without these bounds a sparse file, for example, would fill the memory.
MAX_TABLE_BYTES = 4 * 2**30
MAX_COLUMNS = 10_000  # `init` looks at each: 0.8 ms
# Characters. A longer line counts as several lines, which do not fit the header.
MAX_LINE = 4_000_000
HEAD = 20  # lines, in which the header must end
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A first line by which Excel names the separator.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n?', re.IGNORECASE)
JSON_START = re.compile(r'\s*([{\[]\s*$|\{\s*["}]|\[\s*[\[{])')


class _RowError(DataError):
    """A row without the header's cells. It may have them if quotes are read differently."""


def read_rows(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray, tuple[str, ...]]:
    """Returns a CSV's columns, object [N] of str by name, row numbers, int64 [N], and warnings.

    Rows with only empty cells are left out. Quotes first have the meaning of CSV. If a row does not
    fit the header, each line is read as a row, in which a lone quote is a plain character. Texts in
    TSV files often have such quotes. A line with a separator inside quotes does not fit this
    reading.

    Raises DataError for a row without the header's cells, or a file of another format. Raises
    OSError for an unreadable file.
    """
    try:
        return _read(path, quoted=True)
    except _RowError as error:
        try:
            return _read(path, quoted=False)
        except _RowError:
            raise error from None


def _read(path: Path, *, quoted: bool) -> tuple[dict[str, np.ndarray], np.ndarray, tuple[str, ...]]:
    warnings: list[str] = []
    with _opened(path) as (text, is_ended):
        lines = iter(partial(text.readline, MAX_LINE), "")
        first = next(lines, "")
        _refuse_others(path, first)
        if given := SEPARATOR_LINE.fullmatch(first):
            first = next(lines, "")
        head = [first, *islice(lines, HEAD)]
        separator = given[1] if given else _separator(head)
        lines = chain(head, lines)
        if quoted:
            rows = _quoted_rows(path, lines, separator, warnings)
        else:
            rows = _literal_rows(path, lines, separator, is_ended)
    header, numbers, columns = _collect(path, rows)
    if not is_ended:
        warnings += _cut_end(header[-1], columns[-1], numbers[-1])
    kept = _named_columns(path, header, columns)
    return {header[i]: columns[i] for i in kept}, np.array(numbers), tuple(warnings)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TextIOWrapper, bool]]:
    """Yields a file's text, and True if its last line has a line end.

    Raises DataError if the text cannot be decoded.
    """
    with open_regular(path, MAX_TABLE_BYTES) as file:
        encoding = "utf-16" if file.read(2) in UTF_16_MARKS else "utf-8-sig"
        file.seek(-min(2, file.seek(0, SEEK_END)), SEEK_END)
        last = file.read().strip(b"\0")[-1:]  # one character of UTF-16 has two bytes
        file.seek(0)
        try:
            with TextIOWrapper(file, encoding=encoding) as text:
                yield text, last in (b"\n", b"\r")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path} must be UTF-8 text, got {error}; unpack a compressed file, and save a "
                "table of another program as 'CSV UTF-8' there"
            ) from None


def _refuse_others(path: Path, first: str) -> None:
    """Raises DataError if a CSV cannot have this first line."""
    if not first:
        raise DataError(f"{path} is empty; a table has a header and rows")
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
    """Returns the separator with most header cells. Separators in quotes do not count."""

    def width(separator: str) -> int:
        try:
            return len(next(csv.reader(head, delimiter=separator, strict=True)))
        except csv.Error:  # a quoted cell does not fit this separator
            return 0

    return max(SEPARATORS, key=lambda separator: (width(separator), head[0].count(separator)))


def _quoted_rows(
    path: Path, lines: Iterator[str], separator: str, warnings: list[str]
) -> list[list[str]]:
    """Returns the cells of rows. Raises _RowError for a quote without an end.

    Adds a warning to `warnings`, or raises _RowError, if the lines of a quoted cell may be rows.
    """
    reader = csv.reader(lines, delimiter=separator, strict=True)
    rows: list[list[str]] = []
    try:
        rows.extend(reader)
    except csv.Error as error:
        what = "a cell has a quote at its start and no quote at its end"
        if "field limit" in str(error):
            what = f"a cell has more than {csv.field_size_limit():,} characters"
        raise _RowError(
            f"{path} cannot be read: {what} in row {len(rows) + 1}; the file may be cut, or else "
            "double all quotes in the cell and put quotes around it"
        ) from None
    if reader.line_num > len(rows):
        warnings += [*_check_lines(path, rows, separator)][:1]
    return rows


def _check_lines(path: Path, rows: list[list[str]], separator: str) -> Iterator[str]:
    """Yields warnings of cells with possible rows as lines. Raises _RowError for likely rows."""
    for number, row in enumerate(rows, 1):
        lines = [line.split(separator) for line in separator.join(row).split("\n")]
        if len(lines) == 1 or any(len(cells) != len(rows[0]) for cells in lines):
            continue
        what = (
            f"{len(lines)} lines in a quoted cell of row {number}, each with as many cells as the "
            "header"
        )
        if separator == "\t" or _name_images(lines):
            raise _RowError(
                f"{path} has {what}: these lines are probably rows; remove the quote at the start "
                "of the cell, or double it and put quotes around the cell"
            )
        yield f"{path} has {what}: check whether it is one row"


def _name_images(lines: list[list[str]]) -> bool:
    """Returns True if some column has the name of an image in each line."""
    return any(
        all(cell.lower().endswith(IMAGE_ENDINGS) for cell in cells)
        for cells in zip(*lines, strict=True)
    )


def _literal_rows(
    path: Path, lines: Iterator[str], separator: str, is_ended: bool
) -> list[list[str]]:
    """Returns the cells of lines, without the quotes of cells with quotes at both ends.

    Raises _RowError. `read_rows` then shows the error of the first reading instead.
    """
    rows = [line.rstrip("\n").split(separator) for line in lines]
    if any(map(_quotes_separator, rows)):
        raise _RowError(f"{path} must have no separator in quotes")
    if not is_ended and rows[-1][-1].startswith('"'):
        raise _RowError(f"{path} must end with a whole row")
    return [[_unquoted(cell) for cell in row] for row in rows]


def _quotes_separator(row: list[str]) -> bool:
    """Returns True if a lone quote begins a cell and a lone quote ends a later cell."""
    lone = [cell.strip() for cell in row if cell.count('"') % 2]
    quoted = dropwhile(lambda cell: cell[0] != '"', lone)
    return any(cell[-1] == '"' for cell in islice(quoted, 1, None))


def _unquoted(cell: str) -> str:
    if len(cell) > 1 and cell[0] == cell[-1] == '"':
        return cell[1:-1].replace('""', '"')
    return cell


def _collect(path: Path, rows: list[list[str]]) -> tuple[list[str], list[int], list[np.ndarray]]:
    """Returns the header, the row numbers and the columns, without empty rows.

    Raises DataError for too many columns and _RowError for a row that does not fit.
    """
    header = rows[0]
    if not any(header) or len(header) > MAX_COLUMNS:
        raise DataError(
            f"{path} must have a header of 1 to {MAX_COLUMNS:,} columns in its first row, got "
            f"{len(header):,} columns" + ("" if any(header) else " without a name")
        )
    numbers = [number for number, row in enumerate(rows, 1) if any(row)][1:]
    if not numbers:
        raise DataError(f"{path} has no rows below its header")
    for number in numbers:
        row = rows[number - 1]
        if len(row) != len(header) and not _fit(row, header):
            raise _misfit(path, row, len(header), number, number == len(rows))
    columns = zip(*(rows[number - 1] for number in numbers), strict=True)
    return header, numbers, [_shared(cells) for cells in columns]


def _shared(cells: Sequence[str]) -> np.ndarray:
    """Returns a column, object [N] of str, in which equal cells share a text."""
    known: dict[str, str] = {}
    return np.array([*map(known.setdefault, cells, cells)], dtype=object)


def _fit(row: list[str], header: list[str]) -> bool:
    """Gives a row as many cells as the header if only empty cells differ, else returns False.

    Missing cells count as empty in columns without a name.
    """
    width, found = len(header), len(row)
    if any(row[width:]) or any(header[found:]):
        return False
    row[found:] = [""] * (width - found)
    del row[width:]
    return True


def _misfit(path: Path, row: list[str], width: int, number: int, is_last: bool) -> _RowError:
    if len(row) > width:
        advice = "put quotes around a cell that holds the separator"
    elif is_last:
        advice = "this is the last row, so the file may be cut: get the whole file"
    else:
        advice = "add the empty cells at the end of the row"
    return _RowError(
        f"{path} must have rows with as many cells as its header, separated by commas, semicolons "
        f"or tabs, got {len(row)} cells in place of {width} in row {number}; {advice}"
    )


def _named_columns(path: Path, header: list[str], columns: list[np.ndarray]) -> list[int]:
    """Returns the places of the columns with a name or with a cell.

    One column may have no name, because pandas writes the index of a table without a name.

    Raises DataError for several columns without a name or with the same name.
    """
    kept = [i for i, name in enumerate(header) if name or any(columns[i])]
    unnamed = [str(i + 1) for i in kept if not header[i]]
    if len(unnamed) > 1:
        raise DataError(
            f"the columns of {path} must have names, but columns {', '.join(unnamed[:20])} have no "
            "name; name them in the first row, or empty their cells"
        )
    twice = [name for name, count in Counter(header[i] for i in kept).items() if count > 1]
    if twice:
        raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
    return kept


def _cut_end(name: str, cells: np.ndarray, number: int) -> list[str]:
    """Returns a warning if the last cell of a file may be cut.

    Its text must occur nowhere else, and a text of several cells must begin with it. Many whole
    files lack the last line end too.
    """
    last, counts = cells[-1], Counter(cells[:-1].tolist())
    longer = [text for text, count in counts.most_common() if count > 1 and text.startswith(last)]
    if last in counts or not longer:
        return []
    return [
        f"column {name!r} holds {last!r} in row {number} alone, where the file ends without a line "
        f"end: it may be cut from {longer[0]!r}; end the file with a line end if it is whole"
    ]
