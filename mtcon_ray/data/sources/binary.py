"""Data with images as raw pixels in a few large binary files: CIFAR-10, CIFAR-100 and STL-10."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from mtcon_ray.data.decoding import make_square
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.download import DownloadSource, Part
from mtcon_ray.data.splits import SPLITS, stratified_split
from mtcon_ray.data.text_file import read_lines
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.published import BinarySpec, Cifar10Spec, Cifar100Spec, Stl10Spec
from mtcon_ray.spec.problem import MISSING

# Part of the cache key: increase it if the same files would be decoded to other pixels.
VERSION = 1
TRAIN, UNLABELED, FOLDS = "train_X.bin", "unlabeled_X.bin", "fold_indices.txt"
LABELS = {TRAIN: "train_y.bin", "test_X.bin": "test_y.bin"}


class BinarySource(DownloadSource):
    """Base class of the kinds of data in binary files. The published test images are for test.

    A file of images is a sequence of records of equal size. A record holds num_label_bytes bytes of
    labels and an image, uint8: three planes, red, green and blue, of native_size x native_size.

    archive is the downloaded file, folder_name the folder into which it unpacks. num_images has the
    number of records of each file. Names of files of test images begin with "test". class_files has
    the file of class names and their number by label. The last label is the finest, and the val
    split has the same share of each of its classes. axes turns an image's [3, first axis, second
    axis] into [rows, columns, 3]. pickles has files of the data set's other archive.
    """

    Spec: ClassVar[type[BinarySpec]]
    archive: ClassVar[str]
    folder_name: ClassVar[str]
    num_images: ClassVar[Mapping[str, int]]
    class_files: ClassVar[Mapping[str, tuple[str, int]]]
    num_label_bytes: ClassVar[int]
    axes: ClassVar[tuple[int, int, int]] = (1, 2, 0)
    pickles: ClassVar[tuple[str, ...]] = ()
    spec: BinarySpec

    def codes(self, name: str, records: np.ndarray) -> np.ndarray:
        """Returns the labels of a file's images, int64 [images, labels], MISSING where unknown.

        Labels are in the order of class_files and count from 0. `records` are the file's records,
        uint8 [images, bytes]. Raises DataError if a label is out of range.
        """
        return self.in_range(records[:, : self.num_label_bytes], name)

    def used_images(self) -> dict[str, int]:
        """Returns the number of images used as items by file, in the order of the items."""
        return dict(self.num_images)

    def parts(self) -> dict[str, Part]:
        files = (*self.used_images(), *(file for file, _ in self.class_files.values()))
        return {name: self.part(name) for name in files}

    def part(self, name: str) -> Part:
        """Returns a file as a part of the download: in its folder, or directly in the root."""
        return Part((f"{self.folder_name}/{name}", name), f"{self.archive} of {self.page}")

    def find(self, what: str) -> Path | None:
        found = super().find(what)
        pickles = [Path(self.spec.root) / place for place in self.pickles]
        for path in filter(Path.is_file, pickles if found is None else ()):
            raise DataError(
                f"{path} is of the Python version of the data, which is not read because a pickle "
                f"can run code; put the binary version, {self.archive} of {self.page}, into "
                "data.root"
            )
        return found

    @property
    def names(self) -> list[str]:
        return [
            f"{name} {row}" for name, count in self.used_images().items() for row in range(count)
        ]

    @cached_property
    def _codes(self) -> np.ndarray:
        """The labels of all items, int64 [N, labels]."""
        used = self.used_images().items()
        # Opened for this call only: its touched pages then do not count as memory in use.
        opened = [(name, self._open(name)[:number]) for name, number in used]
        return np.concatenate([self.codes(name, records) for name, records in opened])

    def cells(self, label: str) -> np.ndarray:
        """Returns each item's class, object [N] of str. Raises DataError if names are missing."""
        file, number = self.class_files[label]
        path = self.path(file)
        names = [line.strip() for line in read_lines(path) if line.strip()]
        if len(set(names)) != number or len(names) != number:
            raise DataError(
                f"{path} must have {number} different class names, one per line, got "
                f"{len(set(names))} in {len(names)} lines; {self.way_out}"
            )
        # MISSING, -1, selects the empty text in the last place.
        classes = np.array([*names, ""], dtype=object)
        return np.asarray(classes[self._codes[:, [*self.class_files].index(label)]])

    def read_split(self) -> np.ndarray:
        # Without a label an item is train or test.
        used, share, codes = self.used_images(), self.spec.val_share, self._codes[:, -1]
        is_test = np.repeat([name.startswith("test") for name in used], list(used.values()))
        split = np.where(is_test, SPLITS.index("test"), SPLITS.index("train")).astype(np.int8)
        rows = np.flatnonzero(~is_test & (codes != MISSING))
        split[rows] = stratified_split(codes[rows], rows, (1 - share, share), self.spec.seed)
        return split

    @property
    def way_out(self) -> str:
        return f"unpack {self.archive} again, or download it again from {self.page}"

    def open_records(self, name: str, num_records: int, num_bytes: int) -> np.ndarray:
        """Returns a file as a read-only memory map, uint8 [num_records, num_bytes].

        Raises DataError if the file is missing, cannot be read or has another size.
        """
        path = self.path(name)
        try:
            found = path.stat().st_size
            if found == num_records * num_bytes:
                return np.memmap(path, np.uint8, "r", shape=(num_records, num_bytes))
        except OSError as error:
            raise DataError(f"cannot read {path}: {error.strerror}") from None
        raise DataError(
            f"{path} must have {num_records * num_bytes:,} bytes ({num_records:,} records of "
            f"{num_bytes:,}), got {found:,}; {self.way_out}"
        )

    def in_range(self, labels: np.ndarray, name: str, first: int = 0) -> np.ndarray:
        """Returns the label bytes of a file as codes from 0 on, int64 [images, labels].

        `first` is the byte of the first class. Raises DataError if a byte stands for no class.
        """
        codes = labels.astype(np.int64) - first
        for place, (column, (_, number)) in enumerate(self.class_files.items()):
            bad = np.flatnonzero((codes[:, place] < 0) | (codes[:, place] >= number))
            if len(bad):
                raise DataError(
                    f"{column} labels of {self.path(name)} must be {first} to "
                    f"{first + number - 1}, got {labels[bad[0], place]} for image {bad[0]} (from "
                    f"0) and {len(bad) - 1} more such images; {self.way_out}"
                )
        return codes

    def _open(self, name: str) -> np.ndarray:
        """Returns a file of images as a memory map, uint8 [images, bytes]. Raises DataError."""
        num_bytes = self.num_label_bytes + 3 * self.spec.native_size**2
        return self.open_records(name, self.num_images[name], num_bytes)

    @cached_property
    def _opened(self) -> tuple[list[np.ndarray], np.ndarray]:
        """The files of images as memory maps, and the first row of each, int64 [files]."""
        used = self.used_images()
        first = np.cumsum([0, *used.values()])[:-1]
        return [self._open(name) for name in used], first

    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        files, first = self._opened
        side = self.spec.native_size
        images = np.empty((len(rows), size, size, 3), dtype=np.uint8)
        for place, row in enumerate(rows):
            file = np.searchsorted(first, row, side="right") - 1
            planes = files[file][row - first[file], self.num_label_bytes :].reshape(3, side, side)
            pixels = np.ascontiguousarray(planes.transpose(self.axes))
            image = make_square(Image.fromarray(pixels), size, self.spec.made_square)
            images[place] = np.asarray(image)
        return images, {}

    def content_key(self) -> str:
        return self._keyed(ImageFolder(Path(self.spec.root)).digest(self._places()))

    def signature(self) -> str | None:
        stamps = ImageFolder(Path(self.spec.root)).signature(self._places())
        return None if stamps is None else self._keyed(stamps)

    def _places(self) -> list[str]:
        """Returns the paths of the files of images below the root."""
        return [str(self.path(name).relative_to(self.spec.root)) for name in self.used_images()]

    def _keyed(self, digest: str) -> str:
        counts = list(self.used_images().values())
        return hashlib.sha256(f"{self.spec.kind} {VERSION} {counts} {digest}".encode()).hexdigest()


class CifarSource(BinarySource):
    """Base class of CIFAR-10 and CIFAR-100: images of 32 x 32 pixels, including 10,000 for test.

    Krizhevsky 2009, Learning multiple layers of features.
    """

    page = "https://www.cs.toronto.edu/~kriz/cifar.html"
    num_items = 60_000


class Cifar10Source(CifarSource):
    """Ten classes."""

    Spec = Cifar10Spec

    archive = "cifar-10-binary.tar.gz"
    archives = (archive,)
    md5: ClassVar[Mapping[str, str]] = {archive: "c32a1d4ab5d03f1284b67883e8d87530"}
    folder_name = "cifar-10-batches-bin"
    pickles = ("cifar-10-batches-py/data_batch_1", "data_batch_1", "cifar-10-python.tar.gz")
    num_images: ClassVar[Mapping[str, int]] = {
        **{f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
        "test_batch.bin": 10_000,
    }
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {"class": ("batches.meta.txt", 10)}
    num_label_bytes = 1


class Cifar100Source(CifarSource):
    """100 classes, five in each of 20 superclasses."""

    Spec = Cifar100Spec

    archive = "cifar-100-binary.tar.gz"
    archives = (archive,)
    md5: ClassVar[Mapping[str, str]] = {archive: "03b5dce01913d631647c71ecec9e9cb8"}
    folder_name = "cifar-100-binary"
    pickles = ("cifar-100-python/train", "train", "cifar-100-python.tar.gz")
    num_images: ClassVar[Mapping[str, int]] = {"train.bin": 50_000, "test.bin": 10_000}
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {
        "coarse": ("coarse_label_names.txt", 20),
        "fine": ("fine_label_names.txt", 100),
    }
    num_label_bytes = 2


class Stl10Source(BinarySource):
    """Images of 96 x 96 pixels in ten classes, and images without a label.

    Coates, Ng and Lee 2011, AISTATS.
    """

    Spec = Stl10Spec

    page = "https://cs.stanford.edu/~acoates/stl10/"
    archive = "stl10_binary.tar.gz"
    archives = (archive,)
    folder_name = "stl10_binary"
    num_items = 13_000
    num_images: ClassVar[Mapping[str, int]] = {TRAIN: 5000, "test_X.bin": 8000, UNLABELED: 100_000}
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {"class": ("class_names.txt", 10)}
    num_label_bytes = 0
    axes = (2, 1, 0)  # a plane is stored column by column
    # As in torchvision, because the page of STL-10 has none.
    md5: ClassVar[Mapping[str, str]] = {
        archive: "91f7769df0f17e558f3565bffb0c7dfb",
        TRAIN: "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
        UNLABELED: "5242ba1fed5e4be9e1e742405eb56ca4",
    }
    spec: Stl10Spec

    def used_images(self) -> dict[str, int]:
        used = {name: self.num_images[name] for name in LABELS}
        return used | {UNLABELED: self.spec.unlabeled} if self.spec.unlabeled else used

    def parts(self) -> dict[str, Part]:
        others = [*LABELS.values(), *([] if self.spec.fold is None else [FOLDS])]
        return super().parts() | {name: self.part(name) for name in others}

    def differences(self, table: LabelTable) -> list[str]:
        # The unlabeled images come last, and are as many as the spec says.
        return super().differences(
            replace(table, split=table.split[: len(table) - self.spec.unlabeled])
        )

    def codes(self, name: str, records: np.ndarray) -> np.ndarray:
        if name == UNLABELED:
            return np.full((len(records), 1), MISSING)
        # 1 to 10 are classes.
        codes = self.in_range(
            self.open_records(LABELS[name], len(records), 1), LABELS[name], first=1
        )
        if name == TRAIN and self.spec.fold is not None:
            codes[np.setdiff1d(np.arange(len(codes)), self._fold(self.spec.fold))] = MISSING
        return codes

    def _fold(self, fold: int) -> np.ndarray:
        """Returns the training images of a fold, int64. Raises DataError if the file is broken."""
        path, number = self.path(FOLDS), self.num_images[TRAIN]
        words = "".join(read_lines(path)[fold : fold + 1]).split() or ["nothing"]
        for word in words:
            if not word.isdecimal() or int(word) >= number:
                raise DataError(
                    f"line {fold + 1} of {path} must have numbers from 0 to {number - 1}, got "
                    f"{word}; {self.way_out}"
                )
        return np.array(words, dtype=np.int64)
