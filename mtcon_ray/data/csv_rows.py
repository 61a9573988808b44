"""Rows of a CSV file as text: its encoding, separator and quotes, and the cells of each row.

Rows are numbered as in a spreadsheet. The header is row 1, and a cell with line ends belongs to one
row. Python's module `csv` does not fill up short rows, as pandas does.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.image_names import IMAGE_ENDINGS
from mtcon_ray.errors import DataError

SEPARATORS = (",", ";", "\t")
# Without these bounds a sparse file, for example, would fill the memory.
MAX_TABLE_BYTES = 4 * 2**30
MAX_COLUMNS = 10_000  # `init` looks at each: 0.8 ms
MAX_LINE = 4_000_000  # characters
HEAD = 20  # lines, in which the header must end
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A first line by which Excel names the separator.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n?', re.IGNORECASE)
JSON_START = re.compile(r'\s*([{\[]\s*$|\{\s*["}]|\[\s*[\[{])')


def read_rows(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray, tuple[str, ...]]:
    """Returns a CSV's columns, object [N] of str by name, row numbers, int64 [N], and warnings.

    Rows with only empty cells are left out.

    Raises DataError for a row without the header's cells, for a quoted cell that probably holds
    rows, or for a file of another format. Raises OSError for an unreadable file.
    """
    lines = _lines(path)
    is_ended = lines[-1].endswith("\n")
    if given := SEPARATOR_LINE.fullmatch(lines[0]):
        lines = lines[1:] or [""]
    separator = given[1] if given else _separator(lines[: HEAD + 1])
    rows = _quoted_rows(path, lines, separator)
    doubts = [*_check_lines(path, rows, separator)] if len(rows) < len(lines) else []
    numbers, columns = _columns(path, rows)
    warnings = doubts[:1] + ([] if is_ended else _cut_end(columns[-1], numbers[-1]))
    return _named(path, columns), np.array(numbers[1:]), tuple(warnings)


def _lines(path: Path) -> list[str]:
    """Returns a file's lines, each with its end. Raises DataError if a CSV cannot have them."""
    with open_regular(path, MAX_TABLE_BYTES) as file:
        encoding = "utf-16" if file.read(2) in UTF_16_MARKS else "utf-8-sig"
        file.seek(0)
        try:
            with TextIOWrapper(file, encoding=encoding) as text:
                first = text.readline(MAX_LINE)
                if not first:
                    raise DataError(f"{path} is empty; a table has a header and rows")
                if "\0" in first:
                    raise UnicodeError("null bytes, as in UTF-16 without a byte order mark")
                if JSON_START.match(first):
                    raise DataError(
                        f"{path} must be a CSV or a Parquet file, got JSON; convert it, for "
                        "example by `pandas.read_json(FILE).to_csv('labels.csv', index=False)`, "
                        "with lines=True if each line is an object"
                    )
                lines = [first]
                while line := text.readline(MAX_LINE):
                    if len(line) == MAX_LINE:
                        raise DataError(
                            f"{path} must have lines of fewer than {MAX_LINE:,} characters, got "
                            f"more in line {len(lines) + 1}; the file may be damaged"
                        )
                    if "\0" in line:
                        raise DataError(
                            f"{path} must be text, got a null byte in line {len(lines) + 1}; the "
                            "file may be damaged: get it again, or remove the byte"
                        )
                    lines.append(line)
                return lines
        except UnicodeError as error:
            raise DataError(
                f"{path} must be UTF-8 text, got {error}; unpack a compressed file, and save a "
                "table of another program as 'CSV UTF-8' there"
            ) from None


def _separator(head: Sequence[str]) -> str:
    """Returns the separator with most header cells. Separators in quotes do not count."""

    def width(separator: str) -> int:
        try:
            return len(next(csv.reader(head, delimiter=separator, strict=True)))
        except csv.Error:  # a quoted cell does not fit this separator
            return 0

    return max(SEPARATORS, key=lambda separator: (width(separator), head[0].count(separator)))


def _quoted_rows(path: Path, lines: Sequence[str], separator: str) -> list[list[str]]:
    """Returns the cells of rows. Raises DataError for a quote without an end."""
    rows: list[list[str]] = []
    try:
        rows.extend(csv.reader(lines, delimiter=separator, strict=True))
    except csv.Error as error:
        what = "a cell has a quote at its start and no quote at its end"
        if "field limit" in str(error):
            what = f"a cell has more than {csv.field_size_limit():,} characters"
        raise DataError(
            f"{path} cannot be read: {what} in row {len(rows) + 1}; the file may be cut, or else "
            "double all quotes in the cell and put quotes around it"
        ) from None
    return rows


def _check_lines(path: Path, rows: list[list[str]], separator: str) -> Iterator[str]:
    """Yields warnings of cells with possible rows as lines. Raises DataError for likely rows."""
    for number, row in enumerate(rows, 1):
        lines = [line.split(separator) for line in separator.join(row).split("\n")]
        if len(lines) == 1 or any(len(cells) != len(rows[0]) for cells in lines):
            continue
        cell = f"a quoted cell of row {number}"
        what = f"{len(lines)} lines in {cell}, each with as many cells as the header"
        columns = zip(*lines, strict=True)
        name_images = any(all(c.lower().endswith(IMAGE_ENDINGS) for c in col) for col in columns)
        if separator == "\t" or name_images:
            raise DataError(
                f"{path} has {what}: these lines are probably rows; remove the quote at the start "
                "of the cell, or double it and put quotes around the cell"
            )
        yield f"{path} has {what}: check whether it is one row"


def _columns(path: Path, rows: list[list[str]]) -> tuple[list[int], list[list[str]]]:
    """Returns the numbers of the rows with a text, and the columns of these rows.

    The first row is the header. A row may have further empty cells, and missing cells count as
    empty in columns without a name.

    Raises DataError for too many columns or no rows, or a row that does not fit.
    """
    header, width = rows[0], len(rows[0])
    if not any(header) or width > MAX_COLUMNS:
        raise DataError(
            f"{path} must have a header of 1 to {MAX_COLUMNS:,} columns in its first row, got "
            f"{width:,} columns" + ("" if any(header) else " without a name")
        )
    numbers = [number for number, row in enumerate(rows, 1) if any(row)]
    if len(numbers) == 1:
        raise DataError(f"{path} has no rows below its header")
    filled = [rows[number - 1] for number in numbers]
    for number, row in zip(numbers, filled, strict=True):
        if len(row) != width and (any(row[width:]) or any(header[len(row) :])):
            raise _misfit(path, row, width, number, number == len(rows))
        row += [""] * (width - len(row))
    return numbers, [[row[place] for row in filled] for place in range(width)]


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


def _named(path: Path, columns: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Returns the cells of the columns with a name or with a cell, object [N] of str by name.

    One column may have no name, because pandas writes the index of a table without a name.

    Raises DataError for several columns without a name or with the same name.
    """
    kept = {place: column for place, column in enumerate(columns, 1) if any(column)}
    unnamed = [str(place) for place, column in kept.items() if not column[0]]
    if len(unnamed) > 1:
        raise DataError(
            f"the columns of {path} must have names, but columns {', '.join(unnamed[:20])} have no "
            "name; name them in the first row, or empty their cells"
        )
    [(name, count)] = Counter(column[0] for column in kept.values()).most_common(1)
    if count > 1:
        raise DataError(f"columns of {path} must have different names, got {name!r} twice")
    return {name: _shared(cells) for name, *cells in kept.values()}


def _shared(cells: Sequence[str]) -> np.ndarray:
    """Returns a column, object [N] of str, in which equal cells share a text."""
    known: dict[str, str] = {}
    return np.fromiter(map(known.setdefault, cells, cells), dtype=object, count=len(cells))


def _cut_end(column: Sequence[str], number: int) -> list[str]:
    """Returns a warning if the last cell of a file may be cut.

    Its text must occur nowhere else, and a text of several cells must begin with it. Many whole
    files lack the last line end too.
    """
    name, *cells, last = column
    counts = Counter(cells)
    longer = [text for text, count in counts.most_common() if count > 1 and text.startswith(last)]
    if last in counts or not longer:
        return []
    return [
        f"column {name!r} holds {last!r} in row {number} alone, where the file ends without a line "
        f"end: it may be cut from {longer[0]!r}; end the file with a line end if it is whole"
    ]
