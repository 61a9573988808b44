"""Tests of CIFAR-10 and CIFAR-100, on small files in the formats of the binary archives."""

import errno
import os
import tracemalloc
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from mtcon_ray.data import image_files
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.labels import read_table
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.binary import BinarySource
from mtcon_ray.data.sources.download import DownloadSource
from mtcon_ray.errors import DataError
from mtcon_ray.spec import parse_spec, with_values
from tests.data.sources.binary_files import binary, expected, picture, shrink
from tests.data.sources.downloads import write_text

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BATCHES = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
FINE = [f"fine_{code:02d}" for code in range(100)]
COARSE = [f"coarse_{code:02d}" for code in range(20)]
TEN, HUNDRED = "cifar-10-batches-bin", "cifar-100-binary"


def ten(root: Path, monkeypatch: pytest.MonkeyPatch, per_file: int = 20) -> Path:
    """Writes CIFAR-10; the images of file f have the classes 0, 1, ... and the grey level 10 f."""
    shrink(monkeypatch, "cifar10", **dict.fromkeys(BATCHES, per_file))
    # The official file ends in an empty line.
    write_text(root / TEN / "batches.meta.txt", *NAMES, "")
    for file, name in enumerate(BATCHES):
        records = [bytes([i % 10]) + picture(32, 10 * file, False) for i in range(per_file)]
        (root / TEN / f"{name}.bin").write_bytes(b"".join(records))
    return root


def hundred(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes CIFAR-100 with 10 training and 2 test images of each fine class."""
    shrink(monkeypatch, "cifar100", train=1000, test=200)
    write_text(root / HUNDRED / "fine_label_names.txt", *FINE)
    write_text(root / HUNDRED / "coarse_label_names.txt", *COARSE)
    for name, number in (("train", 1000), ("test", 200)):
        records = [bytes([i % 100 // 5, i % 100]) + picture(32, 7, False) for i in range(number)]
        (root / HUNDRED / f"{name}.bin").write_bytes(b"".join(records))
    return root


def change(path: Path, place: int, value: int) -> None:
    """Overwrites one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] = value
    path.write_bytes(content)


def test_pixels_are_planes_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows count through the files in order, and the label byte is no pixel."""
    images, bad = binary("cifar10", ten(tmp_path, monkeypatch)).decode([0, 19, 20, 65, 119], 32)
    for image, file in zip(images, (0, 0, 1, 3, 5), strict=True):
        assert (image == expected(32, 10 * file)).all()
    assert bad == {}
    images, _ = binary("cifar100", hundred(tmp_path, monkeypatch)).decode([1100], 32)
    assert (images[0] == expected(32, 7)).all()


@pytest.mark.parametrize("size", [24, 32, 80])
def test_other_sizes_are_those_of_an_image_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A PNG of the same pixels is decoded to the same image, which exported models rely on."""
    ten(tmp_path, monkeypatch)
    png = BytesIO()
    Image.fromarray(expected(32, 40)).save(png, "PNG")
    ours = binary("cifar10", tmp_path).decode([80], size)[0][0]
    assert (ours == decode_image(png.getvalue(), size)).all()


def test_labels_of_cifar_10(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = binary("cifar10", ten(tmp_path, monkeypatch)).read_labels()
    assert table.classes == {"class": tuple(NAMES)}
    assert table.labels["class"].tolist() == [*range(10)] * 12
    assert table.labels["class"].dtype == np.int64
    assert table.names[20] == "data_batch_2.bin 0"
    assert len(table.names) == 120


def test_a_label_is_the_name_on_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes are sorted by name, whatever the order of the file and the ends of its lines."""
    ten(tmp_path, monkeypatch)
    write_text(tmp_path / TEN / "batches.meta.txt", *NAMES[::-1], end=" \r\n")
    table = binary("cifar10", tmp_path).read_labels()
    assert table.classes["class"] == tuple(NAMES)
    assert table.labels["class"][:10].tolist() == [*range(10)][::-1]


def test_labels_of_cifar_100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first byte is the coarse label; by default that is held out."""
    source = binary("cifar100", hundred(tmp_path, monkeypatch))
    assert (source.spec.tasks, source.spec.held_out) == (("fine",), ("coarse",))
    table = source.read_labels()
    assert table.classes == {"fine": tuple(FINE), "coarse": tuple(COARSE)}
    assert table.labels["fine"].tolist() == [*range(100)] * 12
    assert (table.labels["coarse"] == table.labels["fine"] // 5).all()
    both = binary("cifar100", tmp_path, tasks=["fine", "coarse"], held_out=[]).read_labels()
    assert both.labels.keys() == {"fine", "coarse"}
    assert binary("cifar100", tmp_path, held_out=[]).read_labels().labels.keys() == {"fine"}
    with pytest.raises(ValidationError, match="should be 'coarse' or 'fine'"):
        binary("cifar100", tmp_path, tasks=["class"])


def test_val_has_the_same_share_of_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in ten by default, drawn by the seed; the test images are the published ones."""
    table = binary("cifar100", hundred(tmp_path, monkeypatch)).read_labels()
    assert table.rows("test").tolist() == [*range(1000, 1200)]
    val = table.rows("val")
    assert np.bincount(table.labels["fine"][val]).tolist() == [1] * 100
    assert len(table.rows("train")) == 900
    half = binary("cifar100", tmp_path, val_share=0.5).read_labels()
    assert np.bincount(half.labels["fine"][half.rows("val")]).tolist() == [5] * 100
    again = binary("cifar100", tmp_path).read_labels().rows("val")
    other = binary("cifar100", tmp_path, seed=1).read_labels().rows("val")
    assert again.tolist() == val.tolist() != other.tolist()
    for share in (0, 1):
        with pytest.raises(ValidationError):
            binary("cifar100", tmp_path, val_share=share)


def test_a_truncated_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes that must be there and those that are there are named, also when decoding."""
    path = ten(tmp_path, monkeypatch) / TEN / "data_batch_3.bin"
    with path.open("r+b") as file:
        file.truncate(19 * 3073)
    message = (
        r"data_batch_3\.bin must have 61,460 bytes \(20 records of 3,073\), got 58,387; unpack "
        r"cifar-10-binary\.tar\.gz again, or download it again from https://www\.cs\.toronto\.edu"
    )
    with pytest.raises(DataError, match=message):
        binary("cifar10", tmp_path).read_labels()
    with pytest.raises(DataError, match=message):
        binary("cifar10", tmp_path).decode([0], 32)


@pytest.mark.parametrize(
    ("kind", "file", "size"),
    [
        ("cifar10", f"{TEN}/data_batch_1.bin", "30,730,000"),
        ("cifar100", f"{HUNDRED}/train.bin", "153,700,000"),
    ],
)
def test_published_sizes(tmp_path: Path, kind: str, file: str, size: str) -> None:
    """Krizhevsky's page gives 30,730,000 bytes for a file of CIFAR-10."""
    write_text(tmp_path / file)
    with pytest.raises(DataError, match=f"must have {size} bytes .*, got 0"):
        binary(kind, tmp_path).read_labels()
    source = SOURCES[kind]
    assert issubclass(source, BinarySource)
    numbers = source.num_images
    assert sum(numbers.values()) == 60_000
    assert sum(number for name, number in numbers.items() if "test" in name) == 10_000


def test_a_label_out_of_range_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the file, the image, its label and the range."""
    path = ten(tmp_path, monkeypatch) / TEN / "data_batch_2.bin"
    change(path, 3 * 3073, 10)
    message = r"class labels of .*data_batch_2\.bin must be 0 to 9, got 10 for image 3 \(from 0\)"
    with pytest.raises(DataError, match=f"{message}; unpack"):
        binary("cifar10", tmp_path).read_labels()
    change(path, 5 * 3073, 255)
    with pytest.raises(DataError, match=f"{message} and 1 more such images; unpack"):
        binary("cifar10", tmp_path).read_labels()


@pytest.mark.parametrize(("place", "value", "what"), [(0, 20, "coarse"), (1, 100, "fine")])
def test_each_label_has_its_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int, value: int, what: str
) -> None:
    """Labels that are not in use are checked, too: they show that a file is broken."""
    change(hundred(tmp_path, monkeypatch) / HUNDRED / "test.bin", place, value)
    message = f"{what} labels of .*test.bin must be 0 to {value - 1}, got {value} for image 0"
    with pytest.raises(DataError, match=message):
        binary("cifar100", tmp_path, tasks=["fine"], held_out=[]).read_labels()


@pytest.mark.parametrize(
    ("names", "got"),
    [
        (NAMES[:9], "9 in 9 lines"),
        ([*NAMES[:9], "bird"], "9 in 10 lines"),
        ([*NAMES, "bird"], "10 in 11 lines"),
    ],
)
def test_each_class_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], got: str
) -> None:
    write_text(ten(tmp_path, monkeypatch) / TEN / "batches.meta.txt", *names)
    message = rf"batches\.meta\.txt must have 10 different class names, one per line, got {got}"
    with pytest.raises(DataError, match=message):
        binary("cifar10", tmp_path).read_labels()


@pytest.mark.parametrize(
    ("kind", "file", "archive"),
    [
        ("cifar10", "cifar-10-batches-py/data_batch_1", "cifar-10-binary.tar.gz"),
        ("cifar10", "data_batch_1", "cifar-10-binary.tar.gz"),
        ("cifar10", "cifar-10-python.tar.gz", "cifar-10-binary.tar.gz"),
        ("cifar100", "cifar-100-python/train", "cifar-100-binary.tar.gz"),
        ("cifar100", "train", "cifar-100-binary.tar.gz"),
        ("cifar100", "cifar-100-python.tar.gz", "cifar-100-binary.tar.gz"),
    ],
)
def test_the_pickled_archive_is_refused(tmp_path: Path, kind: str, file: str, archive: str) -> None:
    """It is named, with the archive to download instead, by `prepare` too."""
    write_text(tmp_path / file)
    message = rf"version .*, {archive} of https://.*, got .*{file} of .* a pickle can run code"
    for check in (binary(kind, tmp_path).read_labels, binary(kind, tmp_path).missing):
        with pytest.raises(DataError, match=message):
            check()


def test_the_pickled_archive_may_lie_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_text(ten(tmp_path, monkeypatch) / "cifar-10-batches-py" / "data_batch_1")
    assert len(binary("cifar10", tmp_path).read_labels()) == 120
    assert binary("cifar10", tmp_path).missing() == []


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ten(tmp_path, monkeypatch) / TEN / "test_batch.bin").unlink()
    source = binary("cifar10", tmp_path)
    assert source.missing() == [
        "test_batch.bin: cifar-10-batches-bin/test_batch.bin or test_batch.bin, from "
        "cifar-10-binary.tar.gz of https://www.cs.toronto.edu/~kriz/cifar.html"
    ]
    with pytest.raises(DataError, match=r"data\.root must hold test_batch\.bin \(cifar-10-bat"):
        source.read_labels()


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of another user, for example."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    ten(tmp_path, monkeypatch)
    monkeypatch.setattr(np, "memmap", refuse)
    with pytest.raises(
        DataError, match=r"data_batch_1\.bin must be a readable file, got Permission"
    ):
        binary("cifar10", tmp_path).read_labels()


def test_root_may_be_the_folder_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = binary("cifar10", ten(tmp_path, monkeypatch) / TEN)
    assert len(source.read_labels()) == 120
    assert source.missing() == []
    assert source.content_key()


def test_keys_follow_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content key follows each byte of the files, the signature their sizes and times."""
    monkeypatch.setattr(image_files, "SETTLED_SECONDS", -1)
    ten(tmp_path / "a", monkeypatch)
    ten(tmp_path / "b", monkeypatch)
    key, signature = (
        binary("cifar10", tmp_path / "a").content_key(),
        binary("cifar10", tmp_path / "a").signature(),
    )
    assert binary("cifar10", tmp_path / "b").content_key() == key
    assert binary("cifar10", tmp_path / "a", val_share=0.3).signature() == signature != key
    assert binary("cifar10", tmp_path / "b").signature() != signature
    change(tmp_path / "a" / TEN / "data_batch_4.bin", 100, 99)
    assert binary("cifar10", tmp_path / "a").content_key() != key
    assert binary("cifar10", tmp_path / "a").signature() != signature


def test_files_written_just_now_have_no_signature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_files, "SETTLED_SECONDS", 60)
    assert binary("cifar10", ten(tmp_path, monkeypatch)).signature() is None


def test_labels_need_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are mapped: 12 MB of images are not read into memory for 4,000 labels."""
    ten(tmp_path, monkeypatch, 700)
    binary("cifar10", tmp_path).read_labels()  # imports are counted otherwise
    source = binary("cifar10", tmp_path)
    tracemalloc.start()
    source.read_labels()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 700 * 6 * 3073 / 4


def test_images_are_stored_at_their_own_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An enlarged copy is made only if store_size asks for it."""
    source = binary("cifar10", ten(tmp_path, monkeypatch), label_noise={"class": 0.5})
    assert np.bincount(read_table(source).split).tolist() == [90, 10, 20]
    data = open_dataset(source.spec, view_size=32, store=tmp_path / "store")
    assert data.images.shape == (120, 32, 32, 3)
    assert (data.images[60] == expected(32, 30)).all()
    large = source.spec.model_copy(update={"store_size": 48})
    assert open_dataset(large, view_size=32, store=tmp_path / "store").images.shape[1] == 48


def test_an_archive_that_lies_at_the_root_is_compared_with_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = binary("cifar10", ten(tmp_path, monkeypatch))
    table = source.read_labels()
    assert source.differences(table) == []
    write_text(tmp_path / "cifar-10-binary.tar.gz", "cut short")
    assert source.differences(table) == [
        f"{tmp_path}/cifar-10-binary.tar.gz has another MD5 than the published "
        "c32a1d4ab5d03f1284b67883e8d87530"
    ]


@pytest.mark.parametrize("kind", ["cifar10", "cifar100", "stl10"])
def test_recipes_are_settings_of_a_spec(kind: str) -> None:
    """The published settings of a kind are valid, and views are as large as its images."""
    source = SOURCES[kind]
    assert issubclass(source, DownloadSource)
    assert issubclass(source, BinarySource)
    spec = parse_spec({"name": "x", "data": {"kind": kind, "root": "somewhere"}})
    spec = with_values(spec, source.recipe)
    assert spec.views.size == source.Spec.native_size
    assert spec.train.batch_size == 512
