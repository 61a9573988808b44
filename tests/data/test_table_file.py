"""Tests of tables in CSV, as programs write them, and in Parquet: read, or refused."""

from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mtcon_ray.data.table_file import read_lists, read_table_file
from mtcon_ray.errors import DataError
from tests.data.labels import labels_of


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads a CSV in several parts, as a large one."""
    monkeypatch.setattr("mtcon_ray.data.csv_rows.PART", 2)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_that_of_the_header(tmp_path: Path, separator: str) -> None:
    """Cells may contain other separators, and quoted cells the same one."""
    path = tmp_path / "labels.csv"
    rows = [["image", '"price, net; gross\t"', "kind"], ["0.jpg", '"1,5;2\t"', "a"]]
    path.write_text("\ufeff" + "\r\n".join(separator.join(cells) for cells in rows))
    found = {name: column.cells.tolist() for name, column in read_table_file(path).columns.items()}
    assert found == {"image": ["0.jpg"], "price, net; gross\t": ["1,5;2\t"], "kind": ["a"]}


BROKEN: dict[str, tuple[str | bytes, str]] = {
    "empty": (b"", "is empty; a table has"),
    "header": ("a,b\n", "has no rows below its header"),
    "twice": ("a,b,b\n1,2,3\n", "different names, got 'b' twice"),
    "long": ("a;b\n1;2\n1;2;3\n", "its header, .* got 3 cells in place of 2 in row 3; put quotes"),
    "long after lines": ('a,b\n1,"x\ny"\n\n1,2,3\n', "got 3 cells in place of 2 in row 4; put"),
    "short": ("a,b,c\n1,2,3\n1,2\n1,2,3\n", "got 2 cells in place of 3 in row 3; add the empty"),
    "cut": ("a,b,c\n1,2,3\n1,", "got 2 .* in row 3; this is the last .* may be cut"),
    "cut in quotes": ('a,b\n1,2\n3,"x y', "a cell has a quote at its start .* in row 3; the file"),
    "joined rows": (
        'a,b\n1.png,"x\n2.png,y"\n',
        "2 lines in a quoted cell of row 2, .* rows; remove",
    ),
    "lone quotes": ('a\tb\n1\t"y z\n2\t"\n3\tw\n', "2 lines in a quoted cell of row 2"),
    "lone quotes above": ('a\t"b\n1\ty\n2\t"\n3\tw\n', "3 lines in a quoted cell of row 1"),
    "quoted separator": ('a,b,c\n1,2,3\n4,"x,y" \n5,6,7\n', "a quote at its start .* in row 3"),
    "doubled quotes": ('a,b,c\n1,"x ""y"",z"\n', "got 2 cells in place of 3 in row 2"),
    "workbook": (b"PK\x03\x04\x14\0\0\0\x08\0", "UTF-8 text, got null .* as 'CSV UTF-8'"),
    "old workbook": (b"\xd0\xcf\x11\xe0\xa1", "must be UTF-8 text, got .*; unpack a compressed"),
    "UTF-16": ("a,b\n1,2\n".encode("utf-16-le"), "UTF-8 text, got null bytes, as in UTF-16 with"),
    "a null byte": (b"file,a\na.png,x\nb.png,\0\n", "text, got a null byte in line 3;"),
    "JSON": ('[{"image": "1.jpg", "kind": 0}]', "a CSV or a Parquet file, got JSON; convert it"),
    "JSON lines": ('{"image": "1.jpg", "kind": 0}\n', "a CSV or a Parquet file, got JSON; conv"),
    "unnamed": ("a,b,,\n1,2,3,4\n", "but columns 3, 4 have no name; name them"),
    "no names": (",,\n1,2,3\n", "a header of 1 to 10,000 columns .* got 3 columns without a name"),
    "wide": ("," * 10_001 + "a\n", "a header of 1 to 10,000 columns .* got 10,002 columns"),
    "large cell": ('a,b\n1,"' + "x," * 65_537 + '"', "a cell has more than 131,072 .* in row 2"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_csv_is_refused_in_plain_words(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message):
        read_table_file(path)


READ: dict[str, tuple[str, dict[str, Any], int]] = {
    "inches": ('a,b\n1,5" nail\n2,"6"" nail"\n', {"a": "12", "b": ['5" nail', '6" nail']}, 3),
    "caption": ('a,b\n1,"x\ny, z"\n\n2,w\n', {"a": "12", "b": ["x\ny, z", "w"]}, 4),
    "spreadsheet": ("a,b,,\n1,x,,\n2,y\n\n3,z,,,,\n\n", {"a": "123", "b": "xyz"}, 5),
    "index": (",a\n0,x\n1,y\n", {"": "01", "a": "xy"}, 3),
    "sep": ("sep=;\na;b\n1;x,y\n", {"a": "1", "b": ["x,y"]}, 2),
    "quoted sep": ('"sep=|"\r\na|b\r\n1|x\r\n', {"a": "1", "b": "x"}, 2),
    "other separator": ("a,b\n0,c;d\n", {"a": "0", "b": ["c;d"]}, 2),
    "other separator first": ("a,b\nc;0,\n1,d\n", {"a": ["c;0", "1"], "b": ["", "d"]}, 3),
    "other separator in quotes": ('a,b\n"0;1",c\n', {"a": ["0;1"], "b": "c"}, 2),
    "old Mac": ("a,b\r1,x\r2,y", {"a": "12", "b": "xy"}, 3),
}


@pytest.mark.parametrize(("content", "columns", "rows"), READ.values(), ids=READ)
def test_files_of_other_programs_are_read(
    tmp_path: Path, content: str, columns: dict[str, Any], rows: int
) -> None:
    """Row numbers are those of a spreadsheet: a cell of two lines is in one row."""
    (tmp_path / "a.csv").write_text(content, newline="")
    (tmp_path / "b.csv").write_text(content, encoding="utf-16", newline="")
    expected = {c: [*cells] for c, cells in columns.items()}
    for name in ("a.csv", "b.csv"):
        table = read_table_file(tmp_path / name)
        assert {c: column.cells.tolist() for c, column in table.columns.items()} == expected
        assert table.rows[-1] == rows


@pytest.mark.parametrize(
    ("end", "is_doubtful"),
    [("ga", True), ("", True), ("ga\n", False), ("gamma", False), ("delta", False), ("b", False)],
)
def test_a_last_cell_that_may_be_cut_is_warned_of(files: Any, end: str, is_doubtful: bool) -> None:
    """Whole files without a last line end are frequent; 'b' occurs elsewhere."""
    kinds = [*["gamma", "b"] * 9, "gamma"]
    rows = [f"{i}.jpg,{['train', 'val', 'test'][i % 3]},{kind}" for i, kind in enumerate(kinds)]
    spec = files.spec()
    files.csv.write_text("\n".join(["image,split,kind", *rows, f"19.jpg,train,{end}"]))
    message = (
        f"column 'kind' holds {end!r} in row 21 alone, where the file ends without a line end: it "
        "may be cut from 'gamma'; end the file with a line end if it is whole"
    )
    assert (message in labels_of(spec).warnings) == is_doubtful


def test_a_cell_of_lines_that_may_be_rows_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"x\n2,y"\n3,z\n4,"u\nv, w"\n')
    assert read_table_file(tmp_path / "a.csv").warnings == (
        f"{tmp_path}/a.csv has 2 lines in a quoted cell of row 2, each with as many cells as the "
        "header: check whether it is one row",
    )


def test_words_for_nothing_and_names_alike_are_warned_of(files: Any) -> None:
    """The words remain classes. Columns that the spec does not use are not checked."""
    files.frame["other"] = ["NA"] * 20
    files.frame.loc[[0, 1, 2, 5], "kind"] = ["NaN", "NA", "NA", "None"]
    files.frame.loc[[6, 7, 8], "kind"] = [" a", "A", "A"]
    table = labels_of(files.spec())
    assert table.classes["kind"] == (" a", "A", "NA", "NaN", "None", "a", "b")
    assert table.warnings[:2] == (
        "label column 'kind': 'NA' (2 rows, first row 3), 'NaN' (1 rows, first row 2), 'None' (1 "
        "rows, first row 7) count as labels of their own; empty the cells whose label is missing",
        "label column 'kind': ' a' (1 rows, first row 8) and 'A' (2 rows, first row 9) and 'a' (7 "
        "rows, first row 5) count as different labels; write them alike if they are one",
    )


@pytest.mark.parametrize(
    ("tags", "names", "message"),
    [
        (["red|new", "old"], [""] * 17 + ["x"], r"lists of at most 3 .* in 20 rows, got 4; keep"),
        (["[1|2]", "[1]"], ["1"] * 18, r"hold names with '\|' between them .* got '\[1\|2\]' in"),
    ],
)
def test_lists_that_are_too_large_or_in_brackets_are_refused(
    files: Any, monkeypatch: pytest.MonkeyPatch, tags: list[str], names: list[str], message: str
) -> None:
    monkeypatch.setattr("mtcon_ray.data.table_file.MAX_BITS", 79)
    files.frame["tags"] = tags + names
    with pytest.raises(DataError, match=message):
        labels_of(files.spec(multi_hot={"looks": "tags"}))


def parquet(folder: Path, **columns: Any) -> Path:
    pd.DataFrame(columns).to_parquet(folder / "labels.parquet")
    return folder / "labels.parquet"


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
    table = read_table_file(parquet(tmp_path, **values))
    cells = {name: found.cells.tolist() for name, found in table.columns.items()}
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
        read_table_file(parquet(tmp_path, image=pd.Series([], dtype=str)))


def test_names_with_the_separator_are_refused_where_they_are_labels(tmp_path: Path) -> None:
    columns = {"tags": [["u", "v"], ["w"]], "words": [["a|b"], None]}
    table = read_table_file(parquet(tmp_path, **columns))
    assert read_lists(table, "tags", "|")[1] == ("u", "v", "w")
    with pytest.raises(DataError, match=r"must not hold \|, which separates them, got 'a\|b'; rep"):
        read_lists(table, "words", "|")
