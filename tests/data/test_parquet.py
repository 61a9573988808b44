"""Tables in Parquet, which are read as a CSV of their columns is."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mtcon_ray.data.table_file import read_lists, read_table_file
from mtcon_ray.errors import DataError


def write(path: Path, **columns: Any) -> Path:
    pd.DataFrame(columns).to_parquet(path)
    return path


# The values of each column and its cells, None for a column that is left out.
COLUMNS: dict[str, tuple[Any, list[str] | None]] = {
    "image": (["a.jpg", "b.jpg", "c.jpg"], ["a.jpg", "b.jpg", "c.jpg"]),
    "kind": (["x", None, "NA"], ["x", "", "NA"]),
    "count": ([1, 2, 3], ["1", "2", "3"]),
    "gap": ([1.0, None, 3.0], ["1", "", "3"]),
    "price": ([0.5, float("nan"), 2.0], ["0.5", "", "2.0"]),
    "flag": ([True, False, None], ["1", "0", ""]),
    "tags": ([["u", "v"], [], None], ["u|v", "", ""]),
    "level": (pd.Categorical(["low", "high", None]), ["low", "high", ""]),
    "pixels": ([b"1", b"2", b"3"], None),
    "nested": ([{"bytes": b"1"}, {"bytes": b"2"}, None], None),
    "half": (np.array([1, 2.5, np.nan], np.float16), ["1.0", "2.5", ""]),
    "embedding": ([[0.5, 1.0], [], None], None),
    "boxes": ([[[1, 2]], [], None], None),
    "crops": ([[b"1"], [], None], None),
    "digest": (pd.Series([b"1", b"2", None], dtype=pd.ArrowDtype(pa.binary(1))), None),
    "icon": (pd.Categorical([b"1", b"2", None]), None),
    "day": ([date(2026, 1, 2), None, None], ["2026-01-02", "", ""]),
    "nothing": ([None, None, None], ["", "", ""]),
    "a.b": ([1, 2, 3], ["1", "2", "3"]),
}


def test_cells_are_those_of_a_csv(tmp_path: Path) -> None:
    values = {name: given for name, (given, _) in COLUMNS.items()}
    table = read_table_file(write(tmp_path / "labels.parquet", **values))
    cells = {name: found.tolist() for name, found in table.columns.items()}
    assert cells == {name: kept for name, (_, kept) in COLUMNS.items() if kept}
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


def test_names_with_the_separator_are_refused_where_they_are_labels(tmp_path: Path) -> None:
    columns = {"tags": [["u", "v"], ["w"]], "words": [["a|b"], None]}
    table = read_table_file(write(tmp_path / "labels.parquet", **columns))
    assert read_lists(table, "tags", "|")[1] == ("u", "v", "w")
    with pytest.raises(DataError, match=r"must not hold \|, which separates them, got 'a\|b'; rep"):
        read_lists(table, "words", "|")
