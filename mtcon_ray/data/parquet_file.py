"""Parquet files as columns of text, and bounds on their unpacked size.

A Parquet file of 200 kB can hold 30 million equal rows, or one long text in a million rows.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtcon_ray.data.cells import LIST_SEPARATOR
from mtcon_ray.errors import DataError
from mtcon_ray.regular_file import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET = ".parquet"
# A table names an image in each row, which takes some bytes. The bounds grow with the file's size,
# except for small files.
MAX_ROWS, ROWS_PER_BYTE = 1_000_000, 1
MAX_CELLS, CELLS_PER_BYTE = 20_000_000, 20
MAX_UNPACKED, UNPACKED_PER_BYTE = 500_000_000, 20


def read_parquet(path: Path) -> tuple[dict[str, np.ndarray], int]:
    """Returns the columns as the text that a CSV of them would hold, by name; and their length.

    Numbers without decimals lose the point, true and false become 1 and 0, the names in a list are
    joined by |, and nulls are empty cells. Columns of bytes and of nested fields, such as images,
    are left out.

    Raises DataError if the file is damaged, has no rows or a repeated column, or unpacks to more
    than the bounds, and OSError if it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    size_of_regular(path)  # pyarrow would wait for a pipe
    # Invalid dates and bytes that are not text are ValueErrors.
    try:
        schema = pq.read_schema(path)
        kept = [field.name for field in schema if not _is_nested(field.type, pa.types)]
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if twice:
            raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
        table = read_columns(path, kept)
        columns = {}
        for name in kept:
            values, places = different_values(table.column(name))
            columns[name] = as_text(values)[places]
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{path} must be a Parquet file, got {error}") from None
    if not table.num_rows:
        raise DataError(f"{path} must have rows, got none")
    return columns, table.num_rows


def size_of_regular(path: Path) -> int:
    """Returns the bytes of a regular file. Raises OSError for any other."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def refuse_rows(path: Path, num_rows: int) -> None:
    """Raises DataError for more rows than a file of this size can name images in."""
    _refuse_more(path, num_rows, max(MAX_ROWS, ROWS_PER_BYTE * size_of_regular(path)), "rows")


def read_columns(path: Path, names: Sequence[str]) -> "pa.Table":
    """Returns columns of all rows. Texts are dictionaries, which hold equal texts once.

    Raises DataError if the file unpacks to more than the bounds.
    """
    import pyarrow.parquet as pq

    size, texts = size_of_regular(path), set()
    cells = unpacked = 0
    with pq.ParquetFile(path) as file:
        found = file.metadata
        refuse_rows(path, found.num_rows)
        for group in range(found.num_row_groups):
            for place in range(found.num_columns):
                column = found.row_group(group).column(place)
                leaf = column.path_in_schema
                if any(leaf == name or leaf.startswith(f"{name}.") for name in names):
                    cells += column.num_values
                    unpacked += column.total_uncompressed_size
                    if column.physical_type == "BYTE_ARRAY":
                        texts.add(leaf)
    _refuse_more(path, cells, max(MAX_CELLS, CELLS_PER_BYTE * size), "values in columns of labels")
    most = max(MAX_UNPACKED, UNPACKED_PER_BYTE * size)
    _refuse_more(path, unpacked, most, "bytes of labels")
    with pq.ParquetFile(path, read_dictionary=sorted(texts)) as file:
        table = file.read(names)
    table.validate(full=True)
    _refuse_more(path, sum(map(_joined_size, table.columns)), most, "bytes of lists")
    return table


def _refuse_more(path: Path, count: int, most: int, what: str) -> None:
    if count > most:
        raise DataError(f"{path} must have at most {most:,} {what} for its size, got {count:,}")


def _joined_size(column: "pa.ChunkedArray") -> int:
    """Returns the bytes of the texts in a column of lists, which are joined row by row; else 0."""
    import pyarrow.compute as pc
    import pyarrow.types as types

    if not types.is_nested(column.type) or not types.is_dictionary(column.type.value_type):
        return 0
    size = 0
    for values in map(pc.list_flatten, column.chunks):
        sizes = pc.binary_length(values.dictionary).take(values.indices)
        size += pc.sum(sizes, min_count=0).as_py()
    return size


def different_values(column: "pa.ChunkedArray") -> tuple[list[Any], np.ndarray]:
    """Returns a column's different values, and the place of each row's value among these."""
    import pyarrow.types as types

    if types.is_nested(column.type):
        return column.to_pylist(), np.arange(len(column))
    encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
    values = [*encoded.dictionary.to_pylist(), None]
    return values, np.asarray(encoded.indices.fill_null(len(values) - 1))


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
