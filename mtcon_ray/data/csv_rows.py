"""Rows of a CSV file as text: its encoding, separator and quotes, and the cells of each row.

Rows are numbered as in a spreadsheet. The header is row 1, and a cell with line ends belongs to one
row. For a million rows Python's module `csv` took the time of pandas and a third of its memory. It
does not fill up short rows, as pandas does.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
# Rows per step. 4096 rows took twice as long, because they do not fit the CPU's cache.
BLOCK = 256
# Equal cells share a text until a column has this number of different texts.
MAX_SHARED = 8 * BLOCK
PACKED = {".gz", ".bz2", ".zip", ".xz", ".zst", ".tar", ".tgz"}
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
# A first line by which Excel names the separator.
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\n?', re.IGNORECASE)
JSON_START = re.compile(r'\s*([{\[]\s*$|\{\s*["}]|\[\s*[\[{])')


Block = list[list[str]]  # the cells of some rows


class _RowError(DataError):
    """A row without the header's cells. It may have them if quotes are read differently."""


@dataclass(frozen=True)
class Rows:
    """Cells by column, each object [N] of str, and the row number of each item, int64 [N]."""

    header: list[str]
    columns: list[np.ndarray]
    numbers: np.ndarray
    warnings: tuple[str, ...]


def read_rows(path: Path) -> Rows:
    """Returns a CSV's rows. Rows with only empty cells are left out.

    Quotes first have the meaning of CSV. If a row does not fit the header, each line is read as a
    row, in which a lone quote is a plain character. Texts in TSV files often have such quotes. A
    line with a separator inside quotes does not fit this reading.

    Raises DataError for a row without the header's cells, or a file of another format. Raises
    OSError for an unreadable file.
    """
    if path.suffix.lower() in PACKED:
        raise DataError(
            f"{path} is compressed (its ending is {path.suffix}); unpack it and give the unpacked "
            "file"
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
            blocks = _quoted_blocks(path, lines, separator, warnings)
        else:
            blocks = _literal_blocks(path, lines, separator, is_ended)
        header, columns, numbers = _collect(path, blocks)
    if len(numbers) == 0:
        raise DataError(f"{path} has no rows below its header")
    kept = _named_columns(path, header, columns)
    if not is_ended:
        warnings += _cut_end(header[-1], columns[-1], int(numbers[-1]))
    return Rows([header[i] for i in kept], [columns[i] for i in kept], numbers, tuple(warnings))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[TextIOWrapper, bool]]:
    """Yields a file's text, and True if its last line has a line end."""
    with open_regular(path, MAX_TABLE_BYTES) as file:
        encoding = "utf-16" if file.read(2) in UTF_16_MARKS else "utf-8-sig"
        file.seek(-min(2, file.seek(0, SEEK_END)), SEEK_END)
        last = file.read().strip(b"\0")[-1:]  # one character of UTF-16 has two bytes
        file.seek(0)
        with TextIOWrapper(file, encoding=encoding) as text:
            yield text, last in (b"\n", b"\r")


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


def _quoted_blocks(
    path: Path, lines: Iterator[str], separator: str, warnings: list[str]
) -> Iterator[Block]:
    """Yields the cells of rows. Raises _RowError for a quote without an end.

    Adds a warning to `warnings`, or raises _RowError, if the lines of a quoted cell may be rows.
    """
    reader = csv.reader(lines, delimiter=separator, strict=True)
    number, width = 1, 0
    while True:
        block: Block = []
        num_lines = reader.line_num
        try:
            block.extend(islice(reader, BLOCK))
        except csv.Error as error:
            what = "a cell has a quote at its start and no quote at its end"
            if "field limit" in str(error):
                what = f"a cell has more than {csv.field_size_limit():,} characters"
            raise _RowError(
                f"{path} cannot be read: {what} in row {number + len(block)}; the file may be cut, "
                "or else double all quotes in the cell and put quotes around it"
            ) from None
        if not block:
            return
        width = width or len(block[0])
        if reader.line_num - num_lines > len(block):
            warnings += _check_lines(path, block, number, separator, width)
            del warnings[1:]
        yield block
        number += len(block)


def _check_lines(
    path: Path, block: Block, number: int, separator: str, width: int
) -> Iterator[str]:
    """Yields warnings of cells with possible rows as lines. Raises _RowError for likely rows."""
    for place, row in enumerate(block):
        lines = [line.split(separator) for line in separator.join(row).split("\n")]
        if len(lines) == 1 or any(len(cells) != width for cells in lines):
            continue
        what = (
            f"{len(lines)} lines in a quoted cell of row {number + place}, each with as many cells "
            "as the header"
        )
        if separator == "\t" or _name_images(lines):
            raise _RowError(
                f"{path} has {what}: these lines are probably rows; remove the quote at the start "
                "of the cell, or double it and put quotes around the cell"
            )
        yield f"{path} has {what}: check whether it is one row"
        return


def _name_images(lines: Block) -> bool:
    """Returns True if some column has the name of an image in each line."""
    return any(
        all(cell.lower().endswith(IMAGE_ENDINGS) for cell in cells)
        for cells in zip(*lines, strict=True)
    )


def _literal_blocks(
    path: Path, lines: Iterator[str], separator: str, is_ended: bool
) -> Iterator[Block]:
    """Yields the cells of lines, without the quotes of cells with quotes at both ends.

    Raises _RowError. `read_rows` then shows the error of the first reading instead.
    """
    block: Block = []
    while part := list(islice(lines, BLOCK)):
        block = [line.rstrip("\n").split(separator) for line in part]
        if any(map(_quotes_separator, block)):
            raise _RowError(f"{path} must have no separator in quotes")
        yield [[_unquoted(cell) for cell in row] for row in block]
    if not is_ended and block and block[-1][-1].startswith('"'):
        raise _RowError(f"{path} must end with a whole row")


def _quotes_separator(row: list[str]) -> bool:
    """Returns True if a lone quote begins a cell and a lone quote ends a later cell."""
    lone = [cell.strip() for cell in row if cell.count('"') % 2]
    quoted = dropwhile(lambda cell: cell[0] != '"', lone)
    return any(cell[-1] == '"' for cell in islice(quoted, 1, None))


def _unquoted(cell: str) -> str:
    if len(cell) > 1 and cell[0] == cell[-1] == '"':
        return cell[1:-1].replace('""', '"')
    return cell


def _collect(path: Path, blocks: Iterator[Block]) -> tuple[list[str], list[np.ndarray], np.ndarray]:
    """Returns the header, the columns and the row numbers, without empty rows.

    Raises DataError for too many columns and _RowError for a row that does not fit.
    """
    first = next(blocks)
    header = first[0]
    if not any(header) or len(header) > MAX_COLUMNS:
        raise DataError(
            f"{path} must have a header of 1 to {MAX_COLUMNS:,} columns in its first row, got "
            f"{len(header):,} columns" + ("" if any(header) else " without a name")
        )
    width, number = len(header), 2  # the header is row 1
    parts: list[list[np.ndarray]] = [[] for _ in header]
    shared: list[dict[str, str]] = [{} for _ in header]
    numbers: list[list[int]] = []
    for block in chain([first[1:]], blocks):
        kept: Sequence[int] = range(len(block))
        rows = block
        if {*map(len, block)} != {width} or not all(map(any, block)):
            kept = [place for place in kept if any(block[place])]
            rows = [block[place] for place in kept]
            for place, row in zip(kept, rows, strict=True):
                if len(row) != width and not _fit(row, header):
                    is_last = row is block[-1] and next(blocks, None) is None
                    raise _misfit(path, row, width, number + place, is_last)
        numbers.append([number + place for place in kept])
        number += len(block)
        for part, known, cells in zip(parts, shared, zip(*rows, strict=True), strict=False):
            part.append(np.array([*map(known.setdefault, cells, cells)], dtype=object))
            if len(known) > MAX_SHARED:
                known.clear()
    columns = [np.concatenate(part) for part in parts if part]
    return header, columns, np.fromiter(chain.from_iterable(numbers), dtype=np.int64)


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
