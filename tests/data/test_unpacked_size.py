"""Tests of small files that unpack to much and of files without an end, which are refused.

Each unpacks to far more than the bound: a test without the check would fill the memory.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mtcon_ray.data.parquet_file import MAX_ROWS
from mtcon_ray.data.row_files import RowFiles
from mtcon_ray.data.table_file import read_table_file
from mtcon_ray.data.text_file import read_fields, read_lines
from mtcon_ray.errors import DataError


def equal_rows(count: int, value: object) -> "pa.Array":
    """Returns an array of one value, which takes no memory for each row."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([value]))


@pytest.mark.parametrize("read", [read_table_file, lambda path: RowFiles(path.parent)])
def test_more_rows_than_a_file_can_name_images_in_are_refused(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    path = tmp_path / "train.parquet"
    pq.write_table(pa.table({"image": equal_rows(MAX_ROWS + 1, "a.png")}), path)
    assert path.stat().st_size < 10_000
    with pytest.raises(DataError, match=r"at most 1,000,000 rows for its size, got 1,000,001"):
        read(path)


def test_many_columns_are_refused(tmp_path: Path) -> None:
    """There are many rows, or more columns than a CSV may have."""
    for count, column, rule in (
        (21, equal_rows(MAX_ROWS, "a.png"), "20,000,000 values for its size, got 21,000,000"),
        (10_001, [1], "at most 10,000 columns .* got 10,001"),
    ):
        table = pa.table({f"c{i}": column for i in range(count)})
        pq.write_table(table, tmp_path / "labels.parquet")
        with pytest.raises(DataError, match=rule):
            read_table_file(tmp_path / "labels.parquet")


def test_lists_of_a_long_text_are_refused(tmp_path: Path) -> None:
    texts = equal_rows(100_000, "x" * 1_000_000)
    lists = pa.ListArray.from_arrays(np.arange(100_001, dtype=np.int32), texts)
    pq.write_table(pa.table({"tags": lists}), tmp_path / "labels.parquet", compression="zstd")
    with pytest.raises(DataError, match="500,000,000 bytes of lists for its size, got 100,000,000"):
        read_table_file(tmp_path / "labels.parquet")


def test_a_long_text_in_many_rows_is_kept_once(tmp_path: Path) -> None:
    """As texts of its own in each row it would take 100 GB."""
    text = "x" * 1_000_000
    table = pa.table({"image": equal_rows(100_000, text), "kind": equal_rows(100_000, text)})
    pq.write_table(table, tmp_path / "labels.parquet", compression="zstd")
    cells = read_table_file(tmp_path / "labels.parquet").columns["kind"].cells
    assert len(cells) == 100_000
    assert len({id(cell) for cell in cells}) == 1


def test_a_sparse_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "labels.csv"
    path.touch()
    os.truncate(path, 20 * 10**9)
    for read in (lambda: read_table_file(path), lambda: read_lines(path)):
        with pytest.raises(DataError, match=r"has 20,000,000,000 bytes, and at most .* are read"):
            read()
    os.truncate(path, 4 * 10**9)
    with pytest.raises(DataError, match="got null bytes"):
        read_table_file(path)
    path.write_bytes(b"image,kind\na.jpg,x\n")
    os.truncate(path, 4 * 10**9)
    with pytest.raises(DataError, match="fewer than 4,000,000 characters, got more in line 3"):
        read_table_file(path)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    for name in ("labels.csv", "train.parquet", "test.arrow"):
        path = tmp_path / name
        os.mkfifo(path)
        for read in (read_table_file, read_lines, partial(read_fields, fields={}, more=False)):
            with pytest.raises(DataError, match="not a regular file"):
                read(path)
    with pytest.raises(DataError, match="not a regular file"):
        RowFiles(tmp_path)
