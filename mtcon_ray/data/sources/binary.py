"""Data with images as raw pixels in a few large binary files: CIFAR-10, CIFAR-100 and STL-10."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
from PIL import Image

from mtcon_ray.data.decoding import make_square
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.sources.download import DownloadSource, Part
from mtcon_ray.data.splits import SPLITS, stratified_split
from mtcon_ray.data.text_file import read_lines
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.published import BinarySpec, Stl10Spec
from mtcon_ray.spec.problem import MISSING

# Part of the cache key: increase it if the same files would be decoded to other pixels.
VERSION = 1
UNLABELED = "unlabeled_X.bin"  # of STL-10


class BinarySource(DownloadSource):
    """Base class of the kinds of data in binary files. The published test images are for test.

    A file of images is a sequence of records of equal size. A record holds a byte for each label in
    class_files and an image, uint8: three planes, red, green and blue, of native_size x
    native_size.

    archive is the downloaded file, folder_name the folder into which it unpacks. num_images has the
    number of records of each file. Names of files of test images begin with "test". class_files has
    the file of class names by label. The last label is the finest, and the val split has the same
    share of each of its classes. label_files has the files of labels apart from the images. axes
    turns an image's [3, first axis, second axis] into [rows, columns, 3].
    """

    archive: ClassVar[str]
    folder_name: ClassVar[str]
    num_images: ClassVar[Mapping[str, int]]
    class_files: ClassVar[Mapping[str, str]]
    label_files: ClassVar[Mapping[str, str]] = {}
    axes: ClassVar[tuple[int, int, int]] = (1, 2, 0)
    spec: BinarySpec

    def codes(self, name: str) -> np.ndarray:
        """Returns the labels of a file's images, int64 [images, labels], MISSING where unknown.

        Labels are in the order of class_files and count from 0.
        """
        return self._files[name][:, : len(self.class_files)].astype(np.int64)

    def used_images(self) -> dict[str, int]:
        """Returns the number of images used as items by file, in the order of the items."""
        return dict(self.num_images)

    def parts(self) -> dict[str, Part]:
        # In the folder of the archive, or directly in the root.
        files = (*self.used_images(), *self.class_files.values(), *self.label_files.values())
        origin = f"{self.archive} of {self.page}"
        return {name: Part((f"{self.folder_name}/{name}", name), origin) for name in files}

    @cached_property
    def names(self) -> list[str]:
        return [f"{name} {row}" for name, n in self.used_images().items() for row in range(n)]

    @cached_property
    def _codes(self) -> np.ndarray:
        """The labels of all items, int64 [N, labels]."""
        return np.concatenate([self.codes(name) for name in self.used_images()])

    def cells(self, label: str) -> np.ndarray:
        lines = map(str.strip, read_lines(self.path(self.class_files[label])))
        # MISSING, -1, selects the empty text in the last place.
        classes = np.array([*filter(None, lines), ""], dtype=object)
        return np.asarray(classes[self._codes[:, [*self.class_files].index(label)]])

    def read_split(self) -> np.ndarray:
        # Without a label an item is train or test.
        used, share, codes = self.used_images(), self.spec.val_share, self._codes[:, -1]
        is_test = np.repeat([name.startswith("test") for name in used], list(used.values()))
        split = np.where(is_test, SPLITS.index("test"), SPLITS.index("train")).astype(np.int8)
        rows = np.flatnonzero(~is_test & (codes != MISSING))
        split[rows] = stratified_split(codes[rows], rows, (1 - share, share), self.spec.seed)
        return split

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
            f"{num_bytes:,}), got {found:,}; unpack {self.archive} again or get it at {self.page}"
        )

    @cached_property
    def _files(self) -> dict[str, np.ndarray]:
        """The files of images as memory maps, uint8 [images, bytes]."""
        label_bytes = 0 if self.label_files else len(self.class_files)
        size = label_bytes + 3 * self.spec.native_size**2
        used = self.used_images().items()
        return {name: self.open_records(name, self.num_images[name], size)[:n] for name, n in used}

    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        side = self.spec.native_size
        images = np.empty((len(rows), size, size, 3), dtype=np.uint8)
        for place, row in enumerate(rows):
            file, _, number = self.names[row].partition(" ")
            planes = self._files[file][int(number), -3 * side**2 :].reshape(3, side, side)
            image = Image.fromarray(np.ascontiguousarray(planes.transpose(self.axes)))
            images[place] = np.asarray(make_square(image, size, "squash"))
        return images, {}

    def content_key(self) -> str:
        return self._keyed(ImageFolder(Path(self.spec.root)).digest(self._places()))

    def signature(self) -> str:
        return self._keyed(ImageFolder(Path(self.spec.root)).signature(self._places()))

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


class Cifar10Source(CifarSource):
    """Ten classes."""

    archive = "cifar-10-binary.tar.gz"
    folder_name = "cifar-10-batches-bin"
    num_images: ClassVar[Mapping[str, int]] = {
        **{f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
        "test_batch.bin": 10_000,
    }
    class_files: ClassVar[Mapping[str, str]] = {"class": "batches.meta.txt"}


class Cifar100Source(CifarSource):
    """100 classes, five in each of 20 superclasses."""

    archive = "cifar-100-binary.tar.gz"
    folder_name = "cifar-100-binary"
    num_images: ClassVar[Mapping[str, int]] = {"train.bin": 50_000, "test.bin": 10_000}
    class_files: ClassVar[Mapping[str, str]] = {
        "coarse": "coarse_label_names.txt", "fine": "fine_label_names.txt",
    }  # fmt: skip


class Stl10Source(BinarySource):
    """Images of 96 x 96 pixels in ten classes, and images without a label.

    Coates, Ng and Lee 2011, AISTATS.
    """

    page = "https://cs.stanford.edu/~acoates/stl10/"
    archive = "stl10_binary.tar.gz"
    folder_name = "stl10_binary"
    num_images: ClassVar[Mapping[str, int]] = {
        "train_X.bin": 5000, "test_X.bin": 8000, UNLABELED: 100_000,
    }  # fmt: skip
    class_files: ClassVar[Mapping[str, str]] = {"class": "class_names.txt"}
    label_files: ClassVar[Mapping[str, str]] = {
        "train_X.bin": "train_y.bin", "test_X.bin": "test_y.bin",
    }  # fmt: skip
    axes = (2, 1, 0)  # a plane is stored column by column
    spec: Stl10Spec

    def used_images(self) -> dict[str, int]:
        used = {name: self.num_images[name] for name in self.label_files}
        return used | {UNLABELED: self.spec.unlabeled} if self.spec.unlabeled else used

    def codes(self, name: str) -> np.ndarray:
        images = self._files[name]
        if name == UNLABELED:
            return np.full((len(images), 1), MISSING)
        # 1 to 10 are classes.
        return self.open_records(self.label_files[name], len(images), 1).astype(np.int64) - 1
