"""CIFAR-10 in its binary version (Krizhevsky 2009, Learning multiple layers of features)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.binary import BinarySource, BinarySpec, amcl_recipe


@SOURCES.register("cifar10")
class Cifar10Source(BinarySource):
    """Images of 32 x 32 pixels in ten classes."""

    class Spec(BinarySpec):
        """CIFAR-10, the binary version; one label, class."""

        native_size = 32
        kind: Literal["cifar10"] = "cifar10"
        tasks: tuple[Literal["class"], ...] = Field(
            ("class",), min_length=1, description="labels to train on"
        )

    page = "https://www.cs.toronto.edu/~kriz/cifar.html"
    archive = "cifar-10-binary.tar.gz"
    folder_name = "cifar-10-batches-bin"
    pickles = ("cifar-10-batches-py/data_batch_1", "data_batch_1", "cifar-10-python.tar.gz")
    num_items = 60_000
    num_images: ClassVar[Mapping[str, int]] = {
        **{f"data_batch_{number}.bin": 10_000 for number in range(1, 6)},
        "test_batch.bin": 10_000,
    }
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {"class": ("batches.meta.txt", 10)}
    num_label_bytes = 1
    md5: ClassVar[Mapping[str, str]] = {
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"
    }
    recipe: ClassVar[Mapping[str, Any]] = amcl_recipe(32)
