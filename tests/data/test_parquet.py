"""Tables in Parquet, which are read as a CSV of their columns is."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mtcon_ray.data.table_file import read_table_file
from mtcon_ray.errors import DataError


def write(path: Path, **columns: Any) -> Path:
    pd.DataFrame(columns).to_parquet(path)
    return path


def test_cells_are_those_of_a_csv(tmp_path: Path) -> None:
    path = write(
        tmp_path / "labels.parquet",
        image=["a.jpg", "b.jpg", "c.jpg"],
        kind=["x", None, "NA"],
        count=[1, 2, 3],
        gap=[1.0, None, 3.0],
        price=[0.5, float("nan"), 2.0],
        flag=[True, False, None],
        tags=[["u", "v"], [], None],
        level=pd.Categorical(["low", "high", None]),
        pixels=[b"1", b"2", b"3"],
        nested=[{"bytes": b"1"}, {"bytes": b"2"}, None],
        half=np.array([1, 2.5, np.nan], np.float16),
        embedding=[[0.5, 1.0], [], None],
        boxes=[[[1, 2]], [], None],
        crops=[[b"1"], [], None],
        digest=pd.Series([b"1", b"2", None], dtype=pd.ArrowDtype(pa.binary(1))),
        icon=pd.Categorical([b"1", b"2", None]),
        day=[date(2026, 1, 2), None, None],
        nothing=[None, None, None],
        **{"a.b": [1, 2, 3]},
    )
    table = read_table_file(path)
    assert {name: cells.tolist() for name, cells in table.columns.items()} == {
        "image": ["a.jpg", "b.jpg", "c.jpg"],
        "kind": ["x", "", "NA"],
        "count": ["1", "2", "3"],
        "gap": ["1", "", "3"],
        "price": ["0.5", "", "2.0"],
        "flag": ["1", "0", ""],
        "tags": ["u|v", "", ""],
        "level": ["low", "high", ""],
        "half": ["1.0", "2.5", ""],
        "day": ["2026-01-02", "", ""],
        "nothing": ["", "", ""],
        "a.b": ["1", "2", "3"],
    }
    assert table.rows.tolist() == [1, 2, 3]


@pytest.mark.parametrize("content", [b"", b"image,kind\na.jpg,x\n"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "labels.parquet"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"labels\.parquet is not a whole Parquet file"):
        read_table_file(path)


def test_a_table_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        read_table_file(write(tmp_path / "labels.parquet", image=pd.Series([], dtype=str)))
