"""CIFAR-100 in its binary version (Krizhevsky 2009, Learning multiple layers of features)."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.binary import BinarySource, BinarySpec, amcl_recipe

Label = Literal["coarse", "fine"]


@SOURCES.register("cifar100")
class Cifar100Source(BinarySource):
    """Images of 32 x 32 pixels in 100 classes, five in each of 20 superclasses."""

    class Spec(BinarySpec):
        """CIFAR-100, the binary version; labels: fine, and coarse, which follows from fine."""

        native_size = 32
        kind: Literal["cifar100"] = "cifar100"
        tasks: tuple[Label, ...] = Field(("fine",), min_length=1, description="labels to train on")
        held_out: tuple[Label, ...] = Field(
            ("coarse",), description="labels never trained on, probed once at the end"
        )

    page = "https://www.cs.toronto.edu/~kriz/cifar.html"
    archive = "cifar-100-binary.tar.gz"
    folder_name = "cifar-100-binary"
    pickles = ("cifar-100-python/train", "train", "cifar-100-python.tar.gz")
    num_items = 60_000
    num_images: ClassVar[Mapping[str, int]] = {"train.bin": 50_000, "test.bin": 10_000}
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {
        "coarse": ("coarse_label_names.txt", 20),
        "fine": ("fine_label_names.txt", 100),
    }
    num_label_bytes = 2
    md5: ClassVar[Mapping[str, str]] = {
        "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"
    }
    recipe: ClassVar[Mapping[str, Any]] = amcl_recipe(32)
