"""Tests of tables in CSV, as programs write them: read, or refused."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.data.table_file import read_table_file
from mtcon_ray.data.text_file import read_fields, read_lines
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
    "joined": ('a,b\n1.png,"x\n2.png,y"\n', "2 lines in a quoted cell of row 2, .* rows; remove"),
    "lone quotes": ('a\tb\n1\t"y z\n2\t"\n3\tw\n', "2 lines in a quoted cell of row 2"),
    "lone quotes above": ('a\t"b\n1\ty\n2\t"\n3\tw\n', "3 lines in a quoted cell of row 1"),
    "workbook": (b"PK\x03\x04\x14\0\0\0\x08\0", "UTF-8 text, got a null .* as 'CSV UTF-8'"),
    "old workbook": (b"\xd0\xcf\x11\xe0\xa1", "must be UTF-8 text, got .*; unpack a compressed"),
    "a null byte": (b"file,a\na.png,x\nb.png,\0\n", "got a null byte in line 3, .* damaged"),
    "a long line": (b"file,a\na.png," + 4_000_000 * b"x", "fewer than 4,000,000 .* in line 2"),
    "JSON": ('[{"image": "1.jpg", "kind": 0}]', "must be a CSV, got JSON; convert it"),
    "JSON lines": ('{"image": "1.jpg", "kind": 0}\n', "must be a CSV, got JSON; convert it"),
    "unnamed": ("a,b,,\n1,2,3,4\n", "but columns 3, 4 have no name; name them"),
    "no names": (",,\n1,2,3\n", "a header of 1 to 10,000 columns .* got 3 columns without a name"),
    "wide": ("," * 10_001 + "a\n", "a header of 1 to 10,000 columns .* got 10,002 columns"),
    "large cell": ('a,b\n1,"' + "x," * 65_537 + '"', "a cell has more than 131,072 .* in row 2"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_csv_is_refused(tmp_path: Path, content: str | bytes, message: str) -> None:
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
def test_files_of_others(tmp_path: Path, content: str, columns: dict[str, Any], rows: int) -> None:
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
    cut = "it may be cut from 'gamma'; end the file with a line end if it is whole"
    where = "in row 21 alone, where the file ends without a line end"
    message = f"column 'kind' holds {end!r} {where}: {cut}"
    assert (message in labels_of(spec).warnings) == is_doubtful


def test_a_cell_of_lines_that_may_be_rows_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,"x\n2,y"\n3,z\n4,"u\nv, w"\n')
    cell = "a quoted cell of row 2, each with as many cells as the header"
    told = f"{tmp_path}/a.csv has 2 lines in {cell}: check whether it is one row"
    assert read_table_file(tmp_path / "a.csv").warnings == (told,)


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


REFUSED_LISTS = [
    (["red|new", "old"], [""] * 17 + ["x"], r"lists of at most 3 .* in 20 rows, got 4; keep"),
    (["[1|2]", "[1]"], ["1"] * 18, r"hold names with '\|' between them .* got '\[1\|2\]' in"),
]


@pytest.mark.parametrize(("tags", "names", "message"), REFUSED_LISTS)
def test_lists_that_are_too_large_or_in_brackets_are_refused(
    files: Any, monkeypatch: pytest.MonkeyPatch, tags: list[str], names: list[str], message: str
) -> None:
    monkeypatch.setattr("mtcon_ray.data.table_file.MAX_BITS", 79)
    files.frame["tags"] = tags + names
    with pytest.raises(DataError, match=message):
        labels_of(files.spec(multi_hot={"looks": "tags"}))


def test_a_sparse_file_and_a_pipe_are_refused_at_once(tmp_path: Path) -> None:
    path, pipe = tmp_path / "labels.csv", tmp_path / "pipe.csv"
    path.touch()
    os.truncate(path, 20 * 10**9)
    os.mkfifo(pipe)
    for read in (read_table_file, read_lines, partial(read_fields, fields={}, more=False)):
        with pytest.raises(DataError, match=r"has 20,000,000,000 bytes, and at most .* are read"):
            read(path)
        with pytest.raises(DataError, match="not a regular file"):
            read(pipe)
    os.truncate(path, 4 * 10**9)
    with pytest.raises(DataError, match="got a null byte in line 1, as in UTF-16"):
        read_table_file(path)
    path.write_bytes(b"image,kind\na.jpg,x\n")
    os.truncate(path, 4 * 10**9)
    with pytest.raises(DataError, match="got a null byte in line 3"):
        read_table_file(path)
