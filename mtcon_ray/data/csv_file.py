"""CSV and Parquet files as columns of strings; errors name the row number that a spreadsheet shows.

pandas is imported inside the functions that need it: commands that read no CSV start a third
faster.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mtcon_ray.data.batch import MISSING, UNKNOWN_BIT
from mtcon_ray.data.cells import LARGEST_NUMBER, MINUS_ONE, NO_BIT, as_bits, words_for_nothing
from mtcon_ray.errors import DataError, nearest

SEPARATORS = (",", ";", "\t")
PARQUET = ".parquet"
LIST_SEPARATOR = "|"


@dataclass(frozen=True)
class CsvFile:
    """Columns of text, object [N] of str by name.

    rows[i] is the row number of item i in the file, where the header is row 1.
    """

    path: Path
    columns: dict[str, np.ndarray]
    rows: np.ndarray

    def column(self, name: str, field: str = "", hint: str = "") -> np.ndarray:
        """Returns the cells of a column, object [N] of str, "" where empty.

        `field` is the spec field that names the column, if one does. `hint` follows it in the
        message.

        Raises DataError if the column is absent.
        """
        if name not in self.columns:
            named = f" that data.{field} names{hint}" if field else ""
            raise DataError(
                f"{self.path} must have the column {name!r}{named}{nearest(name, self.columns)}"
            )
        return self.columns[name]

    def refuse(self, bad: np.ndarray, column: str, rule: str) -> None:
        """Raises DataError for the first item where `bad`, bool [N], is True; else does nothing.

        `rule` completes the sentence "column ... must".
        """
        if bad.any():
            item = int(np.flatnonzero(bad)[0])
            others = int(bad.sum()) - 1
            raise DataError(
                f"column {column!r} of {self.path} must {rule}, got "
                f"{self.columns[column][item]!r} in row {self.rows[item]}"
                + (f" and {others} more such rows" if others else "")
            )


def read_csv(path: Path, what: str = "a table") -> CsvFile:
    """Returns the file's columns as text, without rows whose cells are all empty.

    A file whose name ends in .parquet is read by `_read_parquet`. `what` is the file in messages.

    Raises DataError if the file cannot be read, is no CSV, or has no rows or a repeated column.
    """
    if path.suffix.lower() == PARQUET:
        return _read_parquet(path)
    try:
        cells = _cells(path)
    except OSError as error:
        raise DataError(f"{what} must be a readable file, got {path}: {error.strerror}") from None
    header = [str(name) for name in cells[0]]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
    filled = np.flatnonzero((cells[1:] != "").any(axis=1))
    if len(filled) == 0:
        raise DataError(f"{path} must have rows below its header, got none")
    body = cells[1:][filled]
    columns = {name: body[:, place] for place, name in enumerate(header)}
    return CsvFile(path, columns, filled + 2)  # `filled` counts from 0, below the header in row 1


def _read_parquet(path: Path) -> CsvFile:
    """Returns a Parquet file's columns as the text that a CSV of them would hold.

    Rows are counted from 1. Numbers without decimals lose the point, true and false become 1 and 0,
    the names in a list are joined by |, and nulls are empty cells. Columns of bytes and of nested
    fields, such as images, are left out.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            kept = [field.name for field in schema if not _is_nested(field.type, pa.types)]
            table = file.read(kept)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path} must be a Parquet file, got {error}") from None
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
    if not table.num_rows:
        raise DataError(f"{path} must have rows, got none")
    columns = {name: as_text(table.column(name).to_pylist()) for name in kept}
    return CsvFile(path, columns, np.arange(1, table.num_rows + 1))


def _is_nested(kind: Any, types: Any) -> bool:
    is_bytes = types.is_binary(kind) or types.is_large_binary(kind)
    return bool(is_bytes or types.is_struct(kind) or types.is_map(kind))


def as_text(values: list[Any]) -> np.ndarray:
    """Returns Python values as cells, object [N] of str."""
    known = [v for v in values if v is not None and v == v]  # NaN differs from itself
    whole = all(isinstance(v, float) and v.is_integer() for v in known)
    texts = np.full(len(values), "", dtype=object)
    for place, value in enumerate(values):
        match value:
            case bool():
                texts[place] = str(int(value))
            case float() if value != value:
                pass
            case float() if whole:
                texts[place] = str(int(value))
            case list():
                texts[place] = LIST_SEPARATOR.join(str(v) for v in value if v is not None)
            case _ if value is not None:
                texts[place] = str(value)
    return texts


def read_lines(path: Path, most: int | None = None) -> list[str]:
    """Returns the lines of a text file, or its first ones, without their ends.

    Raises DataError if the file is unreadable.
    """
    try:
        with path.open(encoding="utf-8-sig") as file:
            return [line.rstrip("\n") for line in islice(file, most)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be a readable text file in UTF-8, got {error}") from None


def read_fields(
    path: Path, fields: Mapping[str, type], *, separator: str = r"\s+", skip: int = 0, more: bool
) -> dict[str, np.ndarray]:
    """Returns the first fields of each line after `skip` lines, [N] of the given type by name.

    `separator` is a regular expression. `more` allows further fields in any line, which are
    ignored. For files of millions of lines: strings are the only Python objects that are created.

    Raises DataError if the file cannot be read, or a line has other fields.
    """
    import pandas as pd

    try:
        with warnings.catch_warnings():
            # If all lines are too long, pandas cuts them off and warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                path, sep=separator, header=None, names=list(fields), skiprows=skip,
                dtype=dict(fields), usecols=range(len(fields)) if more else None, index_col=False,
                na_filter=False, encoding="utf-8",
            )  # fmt: skip
    # Among the ValueErrors are those of pandas' parser, of numbers and of the encoding.
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        what = "at least" if more else "just"
        raise DataError(
            f"{path} must have {what} {len(fields)} fields in each line after the first {skip}, "
            f"got: {error}"
        ) from None
    return {name: np.asarray(frame[name]) for name in fields}


def join_attributes(table: CsvFile, images: np.ndarray, path: Path) -> CsvFile:
    """Returns the table with a column added for each attribute of a file in CelebA's format.

    Line 1 of the file is the number of images, line 2 the attributes' names. Every other line has
    an image's file name and a 1 or -1 for each attribute. `images`, object [N] of str, are the
    table's image paths; they are matched by file name. Images absent from the file get "".

    Raises DataError if the file cannot be read or is malformed, or an attribute has the name of
    another column.
    """
    lines = read_lines(path)
    if len(lines) < 2:
        raise DataError(f"{path} must have a line of names below its first, got {len(lines)} lines")
    names = lines[1].split()
    values: dict[str, list[str]] = {}
    for number, line in enumerate(lines[2:], 3):
        image, *bits = line.split() or [""]
        if image and len(bits) != len(names):
            raise DataError(
                f"line {number} of {path} must have a name and {len(names)} values, "
                f"got {len(bits)} values"
            )
        values[image] = bits
    twice = sorted({n for n in names if n in table.columns or names.count(n) > 1})
    if twice:
        raise DataError(f"attributes of {path} must have names of their own, got {twice[0]!r}")
    unknown = [""] * len(names)
    found = [values.get(str(image).rpartition("/")[2], unknown) for image in images]
    columns = dict(zip(names, np.array(found, dtype=object).T, strict=True))
    return replace(table, columns=table.columns | columns)


def _cells(path: Path) -> np.ndarray:
    """Returns all cells, object [rows, columns] of str, including the header as row 0.

    The header is read as a row, because pandas silently renames repeated column names.
    Raises DataError, and OSError for a file that cannot be read.
    """
    import pandas as pd

    def read(separator: str, num_rows: int | None = None) -> np.ndarray:
        # Blank lines are kept, so that row numbers are those of the file; "utf-8-sig" drops the
        # byte order mark that Excel writes.
        frame = pd.read_csv(
            path, sep=separator, nrows=num_rows, header=None, dtype=str, keep_default_na=False,
            na_filter=False, skip_blank_lines=False, encoding="utf-8-sig",
        )  # fmt: skip
        return np.asarray(frame.to_numpy(dtype=object))

    def width(separator: str) -> int:
        try:
            return len(read(separator, 1)[0])
        except pd.errors.ParserError:  # a quoted cell does not fit this separator
            return 0

    try:
        # The separator is the one that gives most header cells. pandas ignores quoted ones.
        return read(max(SEPARATORS, key=width))
    except pd.errors.EmptyDataError:
        raise DataError(f"{path} must have a header and rows, got an empty file") from None
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} must be UTF-8 text, got {error}; save a table of another program as 'CSV "
            "UTF-8' there"
        ) from None
    except pd.errors.ParserError as error:
        # pandas counts the header as line 1.
        what = str(error).strip().rpartition("C error: ")[2]
        raise DataError(
            f"{path} must have rows with as many cells as its header, separated by commas, "
            f"semicolons or tabs, got: {what}; put quotes around a cell that holds the separator"
        ) from None


def doubtful_names(column: str, names: Sequence[str], counts: np.ndarray) -> list[str]:
    """Returns warnings of class names that look like a missing value or differ only in spelling.

    `counts` has the number of rows of each name. Spelling means letter case and surrounding spaces.
    """
    nothing = words_for_nothing(names)
    alike: dict[str, list[str]] = {"": []}  # "" collects the words for nothing
    for name, count in zip(names, counts.tolist(), strict=True):
        key = "" if name in nothing else name.strip().casefold()
        alike.setdefault(key, []).append(f"{name!r} ({count} rows)")
    found = []
    for key, quoted in alike.items():
        what = f"label column {column!r}: {', '.join(quoted)} count as"
        if key == "" and quoted:
            found.append(f"{what} labels of their own; empty the cells whose label is missing")
        elif key and len(quoted) > 1:
            found.append(f"{what} different labels; write them alike if they are one")
    return found


def encode_classes(cells: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns each cell's class index, int64 [N], MISSING where empty, and sorted class names."""
    present = cells != ""
    codes = np.full(len(cells), MISSING, dtype=np.int64)
    names, inverse = np.unique(cells[present], return_inverse=True)
    codes[present] = inverse
    return codes, tuple(str(name) for name in names)


def encode_columns(
    columns: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, tuple[str, ...]]]:
    """Returns `encode_classes` of several columns: class indices and class names, by column."""
    encoded = {name: encode_classes(cells) for name, cells in columns.items()}
    return (
        {name: codes for name, (codes, _) in encoded.items()},
        {name: classes for name, (_, classes) in encoded.items()},
    )


def read_bits(table: CsvFile, columns: Sequence[str], field: str) -> np.ndarray:
    """Returns L columns of yes and no as `as_bits` reads them: uint8 [N, L] of 0 and 1.

    UNKNOWN_BIT where empty. -1 is 0 where no column of the set holds 0, as in CelebA.

    Raises DataError if a column is absent or holds other values, or if the set holds both 0 and -1.
    """
    bits = np.empty((len(table.rows), len(columns)), dtype=np.uint8)
    for place, column in enumerate(columns):
        bits[:, place] = as_bits(table.column(column, field))
        rule = "hold 0 and 1, -1 and 1, true and false, yes and no, or nothing"
        table.refuse(bits[:, place] == NO_BIT, column, rule)
    with_no = np.flatnonzero((bits == 0).any(axis=0))
    for place, column in enumerate(columns if len(with_no) else ()):
        # CheXpert and MIMIC-CXR write -1 for an uncertain finding: read as 0, it would be a label.
        rule = f"not hold -1 where column {columns[with_no[0]]!r} of the set holds 0 (empty a cell "
        rule += "of -1 if its label is uncertain, write 0 if it is no)"
        table.refuse(bits[:, place] == MINUS_ONE, column, rule)
    bits[bits == MINUS_ONE] = 0
    return bits


def read_lists(
    table: CsvFile, column: str, separator: str, field: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns a column of lists such as `red|shiny` as bits, uint8 [N, L], and the L sorted names.

    The bits of an empty cell are UNKNOWN_BIT. Raises DataError if the column is absent.
    """
    cells = table.column(column, field)
    lists = [[part.strip() for part in cell.split(separator) if part.strip()] for cell in cells]
    names = tuple(sorted({part for parts in lists for part in parts}))
    place = {name: index for index, name in enumerate(names)}
    bits = np.zeros((len(cells), len(names)), dtype=np.uint8)
    for item, parts in enumerate(lists):
        bits[item, [place[part] for part in parts]] = 1
    bits[cells == ""] = UNKNOWN_BIT
    return bits, names


def read_numbers(table: CsvFile, column: str, field: str) -> np.ndarray:
    """Returns a column of numbers, float64 [N], NaN where empty.

    Raises DataError if the column is absent or a cell is neither empty nor a finite number.
    """
    import pandas as pd

    cells = table.column(column, field)
    numbers = np.asarray(pd.to_numeric(cells, errors="coerce"), dtype=float)
    bad = (cells != "") & ~(np.abs(numbers) <= LARGEST_NUMBER)
    table.refuse(bad, column, f"hold finite numbers or nothing, at most {LARGEST_NUMBER:g}")
    return numbers
