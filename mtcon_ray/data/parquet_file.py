"""Parquet files as columns of text, and bounds on their unpacked size.

A Parquet file of 200 kB can hold 30 million equal rows, or the same long text in a million rows.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as types

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.column import Column
from mtcon_ray.data.csv_rows import MAX_COLUMNS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import LIST_SEPARATOR

# A table names an image in each row, which takes some bytes. The bounds grow with the file's size,
# except for small files.
MAX_ROWS, ROWS_PER_BYTE = 1_000_000, 1
MAX_CELLS, CELLS_PER_BYTE = 20_000_000, 20
MAX_UNPACKED, UNPACKED_PER_BYTE = 500_000_000, 20


def read_parquet(path: Path) -> tuple[dict[str, Column], np.ndarray, tuple[()], dict[str, str]]:
    """Returns columns by name, row numbers from 1, no warnings, and names with | by column.

    The columns hold text, as in a CSV. Numbers without decimals lose the point, true and false
    become 1 and 0, the names in a list are joined by |, and nulls are empty cells. Columns of
    bytes, of nested fields and of lists with decimals, such as images and embeddings, are left out.

    Raises DataError if the file is damaged, has no rows, a repeated column or too many columns, or
    unpacks to more than the bounds, and OSError if it cannot be read.
    """
    size_of_regular(path)  # pyarrow would wait for a pipe
    # Invalid dates and undecodable texts raise ValueError.
    try:
        schema = pq.read_schema(path)
        _refuse_more(path, len(schema), MAX_COLUMNS, "columns")
        if twice := [name for name, count in Counter(schema.names).items() if count > 1]:
            raise DataError(f"columns of {path} must have different names, got {twice[0]!r} twice")
        kept = [f.name for f in schema if is_plain(f.type, CELL) or is_list(f.type)]
        table = _read_columns(path, kept)
        columns, unclear = {}, {}
        for name in kept:
            values, places = different_values(table.column(name))
            columns[name] = Column.of(as_text(values)).rows(places)
            if bad := name_with_separator(values):
                unclear[name] = bad
    except (OSError, pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"{path} is not a whole Parquet file: {error}") from None
    if not table.num_rows:
        raise DataError(f"{path} has no rows")
    return columns, np.arange(1, table.num_rows + 1), (), unclear


def size_of_regular(path: Path) -> int:
    """Returns the size of a regular file in bytes. Raises OSError for any other file."""
    with open_regular(path) as file:
        return os.fstat(file.fileno()).st_size


def refuse_rows(path: Path, num_rows: int) -> None:
    """Raises DataError for more rows with names of images than fit a file of this size."""
    _refuse_more(path, num_rows, max(MAX_ROWS, ROWS_PER_BYTE * size_of_regular(path)), "rows")


def _read_columns(path: Path, names: Sequence[str]) -> pa.Table:
    """Returns columns of all rows. Texts are dictionaries, which hold equal texts once.

    Raises DataError if the file unpacks to more than the bounds.
    """
    size, cells, unpacked = size_of_regular(path), 0, 0
    most = max(MAX_UNPACKED, UNPACKED_PER_BYTE * size)
    with pq.ParquetFile(path) as file:
        found, schema = file.metadata, file.schema
        refuse_rows(path, found.num_rows)
        leaves = [schema.column(place) for place in range(len(schema))]
        for group in map(found.row_group, range(found.num_row_groups)):
            read = (group.column(place) for place in range(group.num_columns))
            chunks = [chunk for chunk in read if _is_of(chunk.path_in_schema, {*names})]
            cells += sum(chunk.num_values for chunk in chunks)
            unpacked += sum(chunk.total_uncompressed_size for chunk in chunks)
    _refuse_more(path, cells, max(MAX_CELLS, CELLS_PER_BYTE * size), "values")
    _refuse_more(path, unpacked, most, "bytes")
    texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        table = file.read(names)
    table.validate(full=True)
    # The texts in lists are joined row by row.
    _refuse_more(path, sum(map(_joined_size, table.columns)), most, "bytes of lists")
    return table


def _is_of(path: str, names: set[str]) -> bool:
    """Returns True if a leaf is a column of `names` or lies in it. Names may have dots."""
    return not names.isdisjoint(accumulate(path.split("."), "{}.{}".format))


def _refuse_more(path: Path, count: int, most: int, what: str) -> None:
    if count > most:
        raise DataError(f"{path} must have at most {most:,} {what} for its size, got {count:,}")


def _joined_size(column: pa.ChunkedArray) -> int:
    """Returns the bytes of the texts in a column of lists of dictionaries, else 0."""
    if not types.is_nested(column.type) or not types.is_dictionary(column.type.value_type):
        return 0
    size = 0
    for values in map(pc.list_flatten, column.chunks):
        sizes = pc.binary_length(values.dictionary).take(values.indices)
        size += pc.sum(sizes, min_count=0).as_py()
    return size


def different_values(column: pa.ChunkedArray) -> tuple[list[Any], np.ndarray]:
    """Returns a column's different values, and the place of each row's value among them."""
    if not types.is_nested(column.type):
        with suppress(pa.ArrowNotImplementedError):  # float16, for example
            encoded = column.dictionary_encode().unify_dictionaries().combine_chunks()
            values = [*encoded.dictionary.to_pylist(), None]
            return values, np.asarray(encoded.indices.fill_null(len(values) - 1))
    return column.to_pylist(), np.arange(len(column))


def is_list(kind: Any) -> bool:
    """Returns True for a type of lists of text or whole numbers, such as tags."""
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return listed and is_plain(kind.value_type) and not types.is_floating(kind.value_type)


PLAIN = (
    types.is_string, types.is_large_string, types.is_integer, types.is_floating, types.is_boolean,
)  # fmt: skip
# In addition: values that a CSV writes as text too.
CELL = (*PLAIN, types.is_null, types.is_temporal, types.is_decimal, types.is_string_view)


def is_plain(kind: Any, tests: Sequence[Callable[[Any], bool]] = PLAIN) -> bool:
    """Returns True for a type of text, numbers or truth values, or of other `tests`."""
    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(test(kind) for test in tests)


def as_text(values: list[Any]) -> list[str]:
    """Returns Python values as cells."""
    known = [v for v in values if v is not None and v == v]  # NaN differs from itself
    whole = all(isinstance(v, float) and v.is_integer() for v in known)
    texts = [""] * len(values)
    for place, value in enumerate(values):
        if isinstance(value, list):
            texts[place] = LIST_SEPARATOR.join(str(v) for v in value if v is not None)
        elif value is not None and value == value:
            texts[place] = str(int(value) if whole or isinstance(value, bool) else value)
    return texts


def name_with_separator(values: list[Any]) -> str | None:
    """Returns a name in the lists among `values` with the separator of `as_text`, if any."""
    names = (str(name) for value in values if isinstance(value, list) for name in value)
    return next((name for name in names if LIST_SEPARATOR in name), None)
