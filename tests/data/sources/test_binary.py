"""CIFAR-10, CIFAR-100 and STL-10, on small files in the formats of the binary archives."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mtcon_ray.data.decoding import decode_image
from mtcon_ray.errors import DataError
from tests.data.sources import trees
from tests.data.sources.downloads import labels_of, source_of, write_text
from tests.data.sources.trees import CIFAR10, CIFAR100, STL10, Made
from tests.data.test_decoding import encoded

PLANES = [
    ("cifar10", {0: 0, 19: 0, 20: 10, 65: 30, 119: 50}),
    ("cifar100", {0: 7, 1100: 7}),
    ("stl10", {0: 1, 39: 1, 40: 2, 59: 2, 60: 3, 61: 3}),
]


@pytest.mark.parametrize(("kind", "levels"), PLANES)
def test_pixels_are_planes(kind: str, levels: dict[int, int], made: Made) -> None:
    """Planes are stored by rows, and STL-10's by columns. Rows count through the files in order."""
    source = source_of(kind, made(kind), **{"unlabeled": 2} if kind == "stl10" else {})
    side = source.spec.native_size
    assert side is not None
    images, bad = source.decode(list(levels), side)
    for image, level in zip(images, levels.values(), strict=True):
        assert (image == trees.pixels(side, level)).all()
    assert bad == {}


@pytest.mark.parametrize("size", [24, 80])
def test_other_sizes_are_those_of_an_image_file(made: Made, size: int) -> None:
    """A PNG of the same pixels is decoded to the same image, which exported models rely on."""
    png = encoded(Image.fromarray(trees.pixels(32, 40)))
    ours = source_of("cifar10", made("cifar10")).decode([80], size)[0][0]
    assert (ours == decode_image(png, size)).all()


def test_labels_are_the_names_on_their_lines(tmp_path: Path, made: Made) -> None:
    """Classes are sorted by name, whatever the order of the file and the ends of its lines."""
    table = labels_of("cifar10", made("cifar10"))
    assert table.classes == {"class": tuple(trees.TEN)}
    assert table.labels["class"].tolist() == [*range(10)] * 12
    assert (table.names[20], len(table.names)) == ("data_batch_2.bin 0", 120)
    write_text(tmp_path / CIFAR10 / "batches.meta.txt", *trees.TEN[::-1], end=" \r\n")
    table = labels_of("cifar10", tmp_path)
    assert table.classes["class"] == tuple(trees.TEN)
    assert table.labels["class"][:10].tolist() == [*range(10)][::-1]


def test_labels_of_cifar_100(tmp_path: Path, made: Made) -> None:
    """The first byte is the coarse label, which is held out by default."""
    table = labels_of("cifar100", made("cifar100"))
    assert table.classes == {"fine": tuple(trees.FINE), "coarse": tuple(trees.COARSE)}
    assert table.labels["fine"].tolist() == [*range(100)] * 12
    assert (table.labels["coarse"] == table.labels["fine"] // 5).all()


def test_val_has_the_same_share_of_each_class(tmp_path: Path, made: Made) -> None:
    """One in ten by default, drawn by the seed; the test images are the published ones."""
    table = labels_of("cifar100", made("cifar100"))
    assert table.rows("test").tolist() == [*range(1000, 1200)]
    val = table.rows("val")
    assert np.bincount(table.labels["fine"][val]).tolist() == [1] * 100
    assert len(table.rows("train")) == 900
    other = labels_of("cifar100", tmp_path, seed=1).rows("val")
    assert labels_of("cifar100", tmp_path).rows("val").tolist() == val.tolist() != other.tolist()


SIZES = [
    ("cifar10", f"{CIFAR10}/data_batch_1.bin", "30,730,000"),
    ("cifar100", f"{CIFAR100}/train.bin", "153,700,000"),
    ("stl10", f"{STL10}/train_X.bin", "138,240,000"),
]


@pytest.mark.parametrize(("kind", "file", "size"), SIZES)
def test_files_have_the_published_sizes(tmp_path: Path, kind: str, file: str, size: str) -> None:
    """Krizhevsky's page gives 30,730,000 bytes for a file of CIFAR-10.

    Files of images are measured when splits are read: `validate` then finds them.
    """
    write_text(tmp_path / file)
    message = f"must have {size} bytes .*, got 0; unpack .* again or get it at"
    with pytest.raises(DataError, match=message):
        source_of(kind, tmp_path).read_split()


def test_a_file_of_labels_of_another_size_is_refused(tmp_path: Path, made: Made) -> None:
    with (made("stl10") / STL10 / "test_y.bin").open("r+b") as opened:
        opened.truncate(21)
    with pytest.raises(DataError, match=r"20 bytes \(20 records of 1\), got 21"):
        labels_of("stl10", tmp_path)


def test_keys_follow_the_files(tmp_path: Path, made: Made) -> None:
    """The content key follows each byte of the files, the signature their sizes and times."""
    a, b = (source_of("cifar10", made("cifar10", tmp_path / name)) for name in "ab")
    key, signature = a.content_key(), a.signature()
    assert b.content_key() == key != signature
    assert b.signature() != signature
    path = tmp_path / "a" / CIFAR10 / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert a.content_key() != key
    assert a.signature() != signature
    root = made("stl10")
    assert len({source_of("stl10", root, unlabeled=n).content_key() for n in (0, 1, 6)}) == 3


def test_unlabeled_images_are_train_images_without_a_label(made: Made) -> None:
    """The first ones are taken, none by default, and val has none of them."""
    root = made("stl10")
    table = labels_of("stl10", root, unlabeled=4)
    assert table.labels["class"][:60].tolist() == [*range(10)] * 6  # stored as 1 to 10
    assert table.labels["class"][60:].tolist() == [-1] * 4
    assert table.split[60:].tolist() == [0] * 4
    assert table.names[-1] == "unlabeled_X.bin 3"
    assert (table.split[:60] == labels_of("stl10", root).split).all()
    (root / STL10 / "unlabeled_X.bin").unlink()
    assert source_of("stl10", root).missing() == []
    assert len(labels_of("stl10", root)) == 60
