"""Tests of CelebA in its official files and in Kaggle's packaging."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import save_image, source_of, write_text

NAMES = ("5_o_Clock_Shadow", "Bald", "Smiling", "Young")
BITS = ((0, 1, 1, 1), (1, 0, 0, 1), (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 1, 0))
SPLITS = (0, 0, 0, 1, 2, 2)


def make(root: Path, folder: str = "", end: str = "\r\n") -> Path:
    """Writes the text files; the header ends in a space, and values are two columns wide."""
    rows = [
        f"{i:06}.jpg " + " ".join(f"{2 * bit - 1:2}" for bit in bits)
        for i, bits in enumerate(BITS, 1)
    ]
    anno, evaluation, img = (folder and f"{part}/" for part in ("Anno", "Eval", "Img"))
    header = " ".join(NAMES) + " "
    write_text(root / f"{anno}list_attr_celeba.txt", "6", header, *rows, end=end)
    splits = [f"{i:06}.jpg {split}" for i, split in enumerate(SPLITS, 1)]
    write_text(root / f"{evaluation}list_eval_partition.txt", *splits, end=end)
    for i in range(1, 7):
        save_image(root / f"{img}img_align_celeba" / f"{i:06}.jpg", 30 * i)
    return root


def make_kaggle(root: Path) -> Path:
    rows = [
        f"{i:06}.jpg," + ",".join(str(2 * bit - 1) for bit in bits)
        for i, bits in enumerate(BITS, 1)
    ]
    write_text(root / "list_attr_celeba.csv", "image_id," + ",".join(NAMES), *rows)
    splits = [f"{i:06}.jpg,{split}" for i, split in reversed(list(enumerate(SPLITS, 1)))]
    write_text(root / "list_eval_partition.csv", "image_id,partition", *splits)
    for i in range(1, 7):
        save_image(root / "img_align_celeba" / "img_align_celeba" / f"{i:06}.jpg", 30 * i)
    return root


def labels(root: Path, **fields: Any) -> LabelTable:
    return source_of("celeba", root, **fields).read_labels()


@pytest.mark.parametrize("packaging", ["unix", "windows", "folders", "kaggle"])
def test_all_packagings_are_the_same(tmp_path: Path, packaging: str) -> None:
    if packaging == "kaggle":
        make_kaggle(tmp_path)
    else:
        make(tmp_path, "yes" * (packaging == "folders"), "\n" if packaging == "unix" else "\r\n")
    source = source_of("celeba", tmp_path)
    table = source.read_labels()
    assert source.missing() == []
    assert table.multi_hot["attributes"].tolist() == [list(bits) for bits in BITS]
    assert table.multi_hot_names == {"attributes": NAMES}
    assert table.labels == {}
    assert table.split.tolist() == list(SPLITS)
    assert source.decode(range(6), 8)[0][:, 4, 4, 0].tolist() == pytest.approx(
        [30, 60, 90, 120, 150, 180], abs=1
    )


def test_each_attribute_is_a_column_of_classes_too(tmp_path: Path) -> None:
    """The set, two classes and a held-out one may be used together."""
    make(tmp_path)
    table = labels(tmp_path, tasks=["attributes", "Smiling"], held_out=["Young"])
    assert table.classes == {"Smiling": ("no", "yes"), "Young": ("no", "yes")}
    assert table.labels["Smiling"].tolist() == [1, 0, 0, 1, 0, 1]
    spec = source_of("celeba", tmp_path, held_out=["Young"]).spec
    assert [spec.kind_of(name) for name in ("attributes", "Young")] == ["set", "classes"]
    with pytest.raises(ValidationError, match="Input should be"):
        labels(tmp_path, tasks=["Smile"])
    with pytest.raises(DataError, match="must have the attribute 'Mustache'; known: 5_o_Clock"):
        labels(tmp_path, tasks=["Mustache"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("6\r\n", "7\r\n", "as many images as its first line says, got 6 and '7'"),
        ("000002.jpg  1", "000002.jpg  2", "must hold 1, and -1 or 0, got -1 to 2"),
        ("000002.jpg  1", "000002.jpg", "just 5 fields in each line after the first 2"),
        ("000002.jpg  1", "000002.jpg  1 1", "just 5 fields in each line after the first 2"),
        ("000002.jpg", "../../000002.jpg", "must name files inside"),
        ("6\r\n", "", "line 1 of .* must be the number of images, got '5_o_Clock_Shadow"),
        ("Bald ", "", "just 4 fields in each line after the first 2"),
    ],
)
def test_a_broken_file_of_attributes_is_named(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = make(tmp_path) / "list_attr_celeba.txt"
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode(), 1))
    with pytest.raises(DataError, match=message):
        labels(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [("000003.jpg 3", "got 3 for 000003.jpg"), ("x.jpg 0", "got None for 000003.jpg")],
)
def test_a_broken_partition_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = make(tmp_path) / "list_eval_partition.txt"
    path.write_text(path.read_text().replace("000003.jpg 0", line))
    with pytest.raises(DataError, match=f"must have 0, 1 or 2 for each image, {message}"):
        labels(tmp_path)


@pytest.mark.parametrize("folder", ["", "Img/"])
def test_an_archive_that_is_still_there_is_compared_with_its_digest(
    tmp_path: Path, folder: str
) -> None:
    source = source_of("celeba", make(tmp_path, folder))
    table = source.read_labels()
    before = source.differences(table)
    archive = tmp_path / f"{folder}img_align_celeba.zip"
    archive.write_text("cut short")
    (found,) = set(source.differences(table)) - set(before)
    assert found == (
        f"{archive} has another MD5 than the published 00d2c5bc6d35e252742224ab0c1e8fcb"
    )
