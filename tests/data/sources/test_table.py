"""Tests of the table source with valid and invalid CSV files and images, and of its splits."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from mtcon_ray.data.column import Column
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.sources.table import TableSource
from mtcon_ray.data.table_file import TableFile, join_attributes
from mtcon_ray.errors import DataError
from tests.data.archives import pack
from tests.data.labels import labels_of


def test_columns_of_label_sets_are_kept(files: Any) -> None:
    """Bits are read from columns and from lists."""
    files.frame["shiny"] = ["1", "False", ""] + ["0"] * 17
    files.frame["soft"] = ["0"] * 19 + ["1"]
    files.frame["tags"] = ["red|new", "", "new", "red", "|", " "] + ["red"] * 14
    table = labels_of(files.spec(multi_hot={"looks": ["shiny", "soft"], "tags": "tags"}))
    assert table.multi_hot["looks"][:3].tolist() == [[1, 0], [0, 0], [255, 0]]
    assert table.multi_hot["looks"][19].tolist() == [0, 1]
    assert table.multi_hot["tags"][:4].tolist() == [[1, 1], [255, 255], [1, 0], [0, 1]]
    assert (table.multi_hot["tags"][4:6] == 255).all()
    assert table.multi_hot_names == {"looks": ("shiny", "soft"), "tags": ("new", "red")}


UNLIKE_THE_CSV = [
    ({"tasks": ["kin"]}, r"have the column 'kin'; did you mean 'kind'\?"),
    ({"image_column": "imag"}, r"\(data.image_column\); did you mean 'image'\?"),
    ({"split_column": "splits"}, r"null draws a split\); did you mean 'split'\?"),
    ({"split_column": None, "group_column": "x"}, "must have the column 'x'; known: image"),
    ({"multi_hot": {"m": ["kind"]}}, "column 'kind' .* hold 0 and 1, .* or nothing, got 'b'"),
    ({"split_column": "kind"}, r"name a split in each row: .*, got 'b' in row 2"),
    ({"images": "nowhere"}, "data.images not found: nowhere does not exist"),
    ({"csv": "nowhere.csv"}, "cannot read data.csv nowhere.csv: No such file"),
    ({"stratify": ["kind"]}, "stratify must go with a random split, got column 'split'"),
]


@pytest.mark.parametrize(("fields", "message"), UNLIKE_THE_CSV)
def test_a_field_unlike_the_csv_is_named(files: Any, fields: dict[str, Any], message: str) -> None:
    """The message has the field, the value and the nearest name."""
    with pytest.raises(DataError, match=message):
        labels_of(files.spec(**fields))


def test_an_image_without_a_name_is_refused(files: Any) -> None:
    files.frame.loc[5, "image"] = ""
    with pytest.raises(DataError, match=r"column 'image' .* name an image, got '' in row 7"):
        labels_of(files.spec())


@pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
def test_a_cut_archive_is_refused(files: Any, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"images{suffix}"
    pack(files.images, path)
    path.write_bytes(path.read_bytes()[: 700 if suffix == ".tar" else 500])
    with pytest.raises(DataError, match="whole tar"):
        open_dataset(files.spec(images=str(path)), view_size=16, store=tmp_path / "store")


def test_bad_images_are_named_with_their_row(files: Any) -> None:
    """Missing, truncated, empty and non-image files are named; good images are returned."""
    noise = np.random.default_rng(0).integers(256, size=(40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(files.images / "1.jpg")
    whole = (files.images / "1.jpg").read_bytes()
    (files.images / "0.jpg").unlink()
    (files.images / "1.jpg").write_bytes(whole[: len(whole) // 2 + 300])
    (files.images / "2.jpg").write_bytes(b"")
    (files.images / "3.jpg").write_bytes(b"<html>not found</html>")
    images, reasons = TableSource(files.spec()).decode([0, 1, 2, 3, 4], 16)
    whys = ("no such file", "image file is truncated", "empty file", "not an image")
    assert list(reasons) == [0, 1, 2, 3]
    for row, why in enumerate(whys):
        assert reasons[row].startswith(f"row {row + 2}, {row}.jpg: {why}")
    assert images[4].mean() == pytest.approx(48, abs=1)


def test_the_key_follows_the_content_of_images(files: Any, tmp_path: Path) -> None:
    """The key changes with a byte, a missing file, the order and `resize`, not with a label."""

    def key(**fields: str) -> str:
        return TableSource(files.spec(**fields)).content_key()

    seen = [key(), key(resize="crop"), key(resize="pad")]
    files.frame.loc[2, "kind"] = "c"
    assert key() == seen[0]
    image = files.images / "7.jpg"
    image.write_bytes(image.read_bytes()[:-1] + b"x")
    seen.append(key())
    image.unlink()
    seen.append(key())
    files.frame = files.frame.iloc[::-1]
    seen.append(key())
    pack(files.images, tmp_path / "images.tar")
    seen.append(key(images=str(tmp_path / "images.tar")))
    assert len({*seen}) == len(seen) == 7


def test_drawn_split_keeps_groups_whole_and_shares_near(files: Any) -> None:
    """Groups of two items stay together; an item without a group is a group by itself."""
    files.frame["shoe"] = ["" if row < 4 else f"shoe {row // 2}" for row in range(20)]
    spec = files.spec(split_column=None, group_column="shoe", split_fractions=(0.6, 0.2, 0.2))
    table = labels_of(spec)
    assert np.bincount(table.split) == pytest.approx([12, 4, 4], abs=1)
    assert (table.split[4::2] == table.split[5::2]).all()
    assert (table.groups["shoe"][4::2] == table.groups["shoe"][5::2]).all()
    assert len(set(table.groups["shoe"])) == 4 + 8
    assert table.warnings == ()


def test_without_a_column_of_that_name_the_default_draws_a_split(files: Any) -> None:
    assert labels_of(files.spec()).split_origin == "column 'split'"
    files.frame["Split"] = files.frame.pop("split")
    table = labels_of(files.spec())
    assert "the splits are drawn at random; name column 'Split' in" in table.warnings[0]
    meant = labels_of(files.spec(split_column=None))
    assert ((table.split == meant.split).all(), meant.warnings) == (True, ())
    assert table.split_origin == "drawn at random from seed 0"
    # The data have a seed of their own, because all repeats share the test images.
    assert (labels_of(files.spec(seed=1)).split != table.split).any()


def test_a_drawn_split_may_have_the_same_shares_of_each_class(files: Any) -> None:
    files.frame["kind"] = ["a" if row < 10 else "b" for row in range(20)]
    table = labels_of(files.spec(split_column=None, stratify=["kind"]))
    assert [np.bincount(part).tolist() for part in table.split.reshape(2, 10)] == [[7, 1, 2]] * 2
    assert table.split_origin.endswith(", the same shares in each class of kind")
    both = labels_of(files.spec(split_column=None, stratify=["kind", "tone"], seed=1))
    for column in ("kind", "tone"):
        assert (pd.crosstab(files.frame[column], both.split)[0] >= 6).all()


def test_groups_stay_whole_in_a_stratified_split(files: Any) -> None:
    """A group that has items of several classes belongs to one of them, as a whole."""
    files.frame["shoe"] = [f"shoe {row // 2}" for row in range(20)]
    files.frame["kind"] = ["ab"[row % 2 if 4 < row < 15 else row > 9] for row in range(20)]
    for seed in range(3):
        spec = files.spec(split_column=None, group_column="shoe", stratify=["kind"], seed=seed)
        split = labels_of(spec).split
        assert (split[::2] == split[1::2]).all()


def test_images_and_groups_in_two_splits_are_warned_of(files: Any) -> None:
    """The image of rows 0 and 3 is in train and val; that of rows 1 and 2 only in train."""
    files.frame.loc[[3, 2], "image"] = ["0.jpg", "1.jpg"]
    files.frame["shoe"] = [{0: "x", 4: "x", 8: "NA"}.get(row, "") for row in range(20)]
    nothing, *warnings = labels_of(files.spec(group_column="shoe")).warnings
    assert "group column 'shoe': 'NA' (1 rows, first row 10) count as groups of" in nothing
    assert re.fullmatch("2 rows of .* the first: row 4, 1.jpg", warnings[0])
    assert warnings[1].startswith("1 images are in several splits")
    assert warnings[2].startswith("1 groups of 'shoe' are in several splits")


def test_another_separator_than_the_table_s_is_warned_of(files: Any) -> None:
    files.frame["tags"] = ["red;soft" if row % 3 else "soft" for row in range(20)]
    spec = files.spec(multi_hot={"tags": "tags"}, tasks=["tags"])
    told = labels_of(spec).warnings
    assert [text for text in told if "set data.multi_hot_separator to ';'" in text] == [told[0]]
    right = spec.model_copy(update={"multi_hot_separator": ";"})
    assert not any("separator" in text for text in labels_of(right).warnings)


def test_attributes_in_the_celeba_format_are_joined_by_file_name(files: Any) -> None:
    """The attributes of an image that the file does not list are unknown."""
    path = files.images.parent / "list_attr.txt"
    path.write_text("3\n Shiny Soft\n2.jpg  1 -1\n0.jpg -1  1\n9.jpg  1  1\n\n")
    files.frame["image"] = "./" + files.frame["image"]
    fields = {"multi_hot": {"looks": ["Shiny", "Soft"]}, "tasks": ["looks", "Soft"]}
    table = TableSource(files.spec(attributes=str(path), **fields)).read_labels()
    assert table.warnings == (f"{path} lacks 17 images, the first: row 3",)
    assert table.multi_hot["looks"][:4].tolist() == [[0, 1], [255, 255], [1, 0], [255, 255]]
    assert table.classes["Soft"] == ("-1", "1")
    assert table.labels["Soft"][:4].tolist() == [1, -1, 0, -1]


def test_attributes_may_name_whole_paths(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("3\nShiny\na/0.jpg 1\nb/0.jpg -1\n1.jpg 1\n")
    images = Column.of(["b/0.jpg", "a/0.jpg", "c/1.jpg"])
    table = TableFile(tmp_path / "t.csv", {}, np.arange(2, 5))
    found = join_attributes(table, images, tmp_path / "list.txt").columns["Shiny"]
    assert found.cells.tolist() == ["-1", "1", "1"]


BROKEN_ATTRIBUTES = [
    ("3\n", "has no line of names below its first line"),
    ("1\nShiny Soft\n0.jpg 1\n", "just 3 fields in each line after the first 2, got: "),
    ("2\nShiny Soft\n0.jpg 1 1\n", "lists 1 images, but its first line says '2'; the file may"),
    ("2\nShiny Soft\n0.jpg 1 1\n0.jpg 1 0\n", "must list an image once, got '0.jpg' twice"),
    ("1\nShiny kind\n0.jpg 1 1\n", "must name other attributes than columns, got 'kind'"),
    (None, "as text in UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN_ATTRIBUTES)
def test_a_broken_file_of_attributes_is_named(files: Any, text: str | None, message: str) -> None:
    path = files.images.parent / "list_attr.txt"
    if text is not None:
        path.write_text(text)
    spec = files.spec(attributes=str(path), multi_hot={"looks": ["Shiny", "Soft"]})
    with pytest.raises(DataError, match=message):
        labels_of(spec)
