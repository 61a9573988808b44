"""Tests of CSV files as different programs write them: read, or refused with a way out."""

import gzip
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.data.csv_file import read_csv
from mtcon_ray.errors import DataError
from tests.data.labels import labels_of


def packed() -> bytes:
    """Returns a zip file, as workbooks are."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", "<Types/>" * 9)
    return content.getvalue()


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_the_separator_is_that_of_the_header(tmp_path: Path, separator: str) -> None:
    """Cells may contain other separators, and quoted cells the same one."""
    path = tmp_path / "labels.csv"
    rows = [["image", '"price, net; gross\t"', "kind"], ["0.jpg", '"1,5;2\t"', "a"]]
    path.write_text("\ufeff" + "\r\n".join(separator.join(cells) for cells in rows))
    table = read_csv(path)
    assert list(table.columns) == ["image", "price, net; gross\t", "kind"]
    assert [cells[0] for cells in table.columns.values()] == ["0.jpg", "1,5;2\t", "a"]


@pytest.mark.parametrize("row", ["0.jpg,a;b", "a;0.jpg,", "0.jpg", '"0;1.jpg",a', ""])
def test_another_separator_may_stand_in_the_first_row(tmp_path: Path, row: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_text(f"image,kind\n{row}\n1.jpg,b\n")
    assert read_csv(path).columns["image"][-1] == "1.jpg"


def test_a_header_of_one_column_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("image\n0.jpg\n")
    assert list(read_csv(tmp_path / "a.csv").columns) == ["image"]


def test_a_packed_csv_is_read_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"image;kind\n0.jpg;a\n"))
    assert list(read_csv(tmp_path / "a.csv.gz").columns) == ["image", "kind"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a;b\n1;2\n1;2;3\n", r"got: Expected 2 fields in line 3, saw 3; put quotes"),
        ('a,b\n1,"x\ny"\n\n1,2,3\n', r"got: Expected 2 fields in line 4, saw 3; put quotes"),
        ('a,b\n1,2\n1,"2\n3,4\n', r"got: EOF inside string starting at row 2; put quotes"),
        (packed(), "must be UTF-8 text, got .* save a table of another program as 'CSV UTF-8'"),
        (b"\xd0\xcf\x11\xe0\xa1", "must be UTF-8 text, got .* save a table of another program"),
    ],
    ids=["ragged", "after lines in quotes", "quote", "workbook", "old workbook"],
)
def test_what_is_no_csv_is_refused_in_plain_words(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message) as caught:
        read_csv(path)
    assert "C error" not in str(caught.value)


def test_words_for_nothing_and_names_alike_are_warned_of(files: Any) -> None:
    """The words remain classes. Columns that the spec does not use are not checked."""
    files.frame["other"] = ["NA"] * 20
    files.frame.loc[[0, 1, 2, 5], "kind"] = ["NaN", "NA", "NA", "None"]
    files.frame.loc[[6, 7, 8], "kind"] = [" a", "A", "A"]
    table = labels_of(files.spec())
    assert table.classes["kind"] == (" a", "A", "NA", "NaN", "None", "a", "b")
    assert table.warnings[:2] == (
        "label column 'kind': 'NA' (2 rows), 'NaN' (1 rows), 'None' (1 rows) count as labels of "
        "their own; empty the cells whose label is missing",
        "label column 'kind': ' a' (1 rows), 'A' (2 rows), 'a' (7 rows) count as different "
        "labels; write them alike if they are one",
    )


def test_columns_of_lists_are_warned_of_too(files: Any) -> None:
    files.frame["tags"] = ["red|new", "red", "Red| red", "NaN", "NA|new"] + ["new"] * 14 + [""]
    table = labels_of(files.spec(multi_hot={"looks": "tags"}))
    assert table.multi_hot_names["looks"] == ("NA", "NaN", "Red", "new", "red")
    assert table.warnings[:2] == (
        "label column 'tags': 'NA' (1 rows), 'NaN' (1 rows) count as labels of their own; empty "
        "the cells whose label is missing",
        "label column 'tags': 'Red' (1 rows), 'red' (3 rows) count as different labels; write "
        "them alike if they are one",
    )


def test_plain_labels_are_not_warned_of(files: Any) -> None:
    files.frame["kind"] = ["nano" if row % 2 else "b" for row in range(20)]
    files.frame.loc[0, "kind"] = ""
    assert labels_of(files.spec()).warnings == ()
