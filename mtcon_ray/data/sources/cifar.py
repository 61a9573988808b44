"""CIFAR-10 and CIFAR-100 as binary files.

Krizhevsky 2009, Learning multiple layers of features.
"""

from collections.abc import Mapping
from typing import ClassVar

from mtcon_ray.data.sources.binary import BinarySource
from mtcon_ray.spec.data.published import Cifar10Spec, Cifar100Spec


class CifarSource(BinarySource):
    """Base class of both: images of 32 x 32 pixels, including 10,000 for test."""

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
