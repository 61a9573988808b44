"""Tests of STL-10, on small files in the format of the binary archive."""

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.data.sources.stl10 import Stl10Source
from mtcon_ray.errors import DataError
from tests.data.sources.binary_files import binary, expected, picture, shrink
from tests.data.sources.downloads import write_text

NAMES = ["airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"]
FOLDER = "stl10_binary"
TRAIN, TEST, UNLABELED = 40, 20, 6


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with 40 training, 20 test and 6 unlabeled images, levels 1, 2 and 3.

    Image i of the first two has the label 1 + i % 10; fold f has the images from 4 f to 4 f + 3.
    """
    shrink(monkeypatch, "stl10", train_X=TRAIN, test_X=TEST, unlabeled_X=UNLABELED)
    folder = tmp_path / FOLDER
    write_text(folder / "class_names.txt", *NAMES)
    files = {"train": (TRAIN, 1), "test": (TEST, 2), "unlabeled": (UNLABELED, 3)}
    for name, (number, level) in files.items():
        (folder / f"{name}_X.bin").write_bytes(picture(96, level, True) * number)
        if name != "unlabeled":
            (folder / f"{name}_y.bin").write_bytes(bytes(1 + i % 10 for i in range(number)))
    # Each line of the official file ends in a space.
    folds = [" ".join(str(4 * fold + i) for i in range(4)) + " " for fold in range(10)]
    write_text(folder / "fold_indices.txt", *folds)
    return tmp_path


def labels(root: Path, **fields: object) -> LabelTable:
    return binary("stl10", root, **fields).read_labels()


def test_pixels_are_planes_of_columns(root: Path) -> None:
    """The corner at the top right of the picture is there, not at the bottom left."""
    images, bad = binary("stl10", root, unlabeled=2).decode([0, 39, 40, 59, 60, 61], 96)
    for image, level in zip(images, (1, 1, 2, 2, 3, 3), strict=True):
        assert (image == expected(96, level)).all()
    assert bad == {}


def test_labels_are_the_names_from_one_on(root: Path) -> None:
    table = labels(root)
    assert table.classes == {"class": tuple(NAMES)}
    assert table.labels["class"].tolist() == [i % 10 for i in [*range(TRAIN), *range(TEST)]]
    assert table.names[TRAIN] == "test_X.bin 0"


def test_splits_are_the_published_test_and_a_share_of_train(root: Path) -> None:
    table = labels(root, val_share=0.25)
    assert table.rows("test").tolist() == [*range(40, 60)]
    assert np.bincount(table.labels["class"][table.rows("val")]).tolist() == [1] * 10
    assert len(table.rows("train")) == 30


def test_unlabeled_images_are_train_images_without_a_label(root: Path) -> None:
    """The first ones are taken, none by default, and val has none of them."""
    table = labels(root, unlabeled=4)
    assert table.labels["class"][60:].tolist() == [-1] * 4
    assert table.split[60:].tolist() == [0] * 4
    assert table.names[-1] == "unlabeled_X.bin 3"
    assert (table.split[:60] == labels(root).split).all()
    assert len(labels(root)) == 60
    with pytest.raises(ValidationError, match="less than or equal to 100000"):
        labels(root, unlabeled=100_001)


def test_the_unlabeled_file_is_needed_only_if_it_is_used(root: Path) -> None:
    (root / FOLDER / "unlabeled_X.bin").unlink()
    assert binary("stl10", root).missing() == []
    assert len(labels(root)) == 60
    assert [line.split(":")[0] for line in binary("stl10", root, unlabeled=1).missing()] == [
        "unlabeled_X.bin"
    ]
    with pytest.raises(DataError, match=r"from stl10_binary\.tar\.gz of https://cs\.stanford"):
        labels(root, unlabeled=1)


def test_files_are_compared_with_their_digests(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlabeled images are no difference from the published number of images."""
    source = binary("stl10", root, unlabeled=5)
    found = source.differences(source.read_labels())
    assert [line.split("/")[-1].split()[0] for line in found] == [
        "train_X.bin", "test_X.bin", "unlabeled_X.bin", "train_y.bin", "test_y.bin",
    ]  # fmt: skip
    monkeypatch.setattr(Stl10Source, "md5", {})
    assert source.differences(source.read_labels()) == []


def test_each_number_of_unlabeled_images_has_its_own_cache(root: Path) -> None:
    keys = {binary("stl10", root, unlabeled=number).content_key() for number in (0, 1, 6)}
    assert len(keys) == 3


def test_a_fold_keeps_the_labels_of_its_images(root: Path) -> None:
    """The other training images stay without a label; val is a share of the fold."""
    table = labels(root, fold=3, val_share=0.5)
    known = np.flatnonzero(table.known("class"))
    assert known.tolist() == [*range(12, 16), *range(40, 60)]
    assert set(table.rows("val")) < set(range(12, 16))
    assert len(table.rows("train")) + len(table.rows("val")) == TRAIN
    assert "fold_indices.txt" in binary("stl10", root, fold=0).parts()
    assert "fold_indices.txt" not in binary("stl10", root).parts()
    with pytest.raises(ValidationError):
        labels(root, fold=10)


@pytest.mark.parametrize(
    ("line", "got"), [("0 1 40", "40"), ("0 x", "x"), ("", "nothing"), ("-1", "-1")]
)
def test_a_broken_fold_is_refused(root: Path, line: str, got: str) -> None:
    write_text(root / FOLDER / "fold_indices.txt", "0 1 2", line)
    message = rf"line 2 of .*fold_indices\.txt must have numbers from 0 to 39, got {got}; unpack"
    with pytest.raises(DataError, match=message):
        labels(root, fold=1)


@pytest.mark.parametrize("label", [0, 11])
def test_a_label_out_of_range_is_refused(root: Path, label: int) -> None:
    """0 is no class; it does not mean that the label is missing."""
    content = bytearray((root / FOLDER / "train_y.bin").read_bytes())
    content[7] = label
    (root / FOLDER / "train_y.bin").write_bytes(content)
    message = rf"class labels of .*train_y\.bin must be 1 to 10, got {label} for image 7 "
    with pytest.raises(DataError, match=message):
        labels(root)


@pytest.mark.parametrize(
    ("file", "size", "message"),
    [
        ("train_X.bin", 39 * 27648, r"1,105,920 bytes \(40 records of 27,648\), got 1,078,272;"),
        ("test_X.bin", 1, r"552,960 bytes \(20 records of 27,648\), got 1; unpack stl10_binary"),
        ("test_y.bin", 21, r"20 bytes \(20 records of 1\), got 21; unpack stl10_binary\.tar\.gz"),
    ],
)
def test_a_file_of_another_size_is_refused(root: Path, file: str, size: int, message: str) -> None:
    """Labels are read, and the files of images are measured: `validate` then finds them."""
    with (root / FOLDER / file).open("r+b") as opened:
        opened.truncate(size)
    with pytest.raises(DataError, match=f"{file} must have {message}"):
        labels(root)


def test_published_sizes() -> None:
    """The numbers of images on the page of STL-10; an image has 3 x 96 x 96 bytes."""
    assert Stl10Source.num_images == {
        "train_X.bin": 5000, "test_X.bin": 8000, "unlabeled_X.bin": 100_000,
    }  # fmt: skip


def test_the_data_are_used_as_any_other(root: Path, tmp_path: Path) -> None:
    """A task may have labels for a part of the train split only; small views have small copies."""
    source = binary("stl10", root, unlabeled=6, val_share=0.25)
    assert np.bincount(read_table(source).split).tolist() == [36, 10, 20]
    data = open_dataset(source.spec, view_size=16, store=tmp_path / "store")
    assert data.images.shape == (66, 20, 20, 3)
    assert data.images[65].min() == 3
    assert data.sizes == {"class": 10}
