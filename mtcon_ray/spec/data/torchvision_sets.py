"""Section of the data sets of torchvision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.base.registry import LocalPath
from mtcon_ray.errors import nearest
from mtcon_ray.spec.data.base import SOURCES, DrawnSplitSpec, Split

LABEL = "class"


@dataclass(frozen=True)
class Published:
    """The arguments of a data set's constructor.

    parts has the arguments of each split. If images are not files, `labels` is the attribute with
    the classes of all images. levels has the argument for the choice of a label, and its values,
    which are the labels' names. options has further arguments allowed in a spec.
    """

    parts: Mapping[Split, Mapping[str, Any]]
    labels: str | None = None
    levels: tuple[str, tuple[str, ...]] | None = None
    options: tuple[str, ...] = ()


def _by_split(train: str, val: str | None, test: str) -> dict[Split, Mapping[str, Any]]:
    words: dict[Split, str | None] = {"train": train, "val": val, "test": test}
    return {split: {"split": word} for split, word in words.items() if word is not None}


THREE = _by_split("train", "val", "test")
TWO = _by_split("train", None, "test")
# Their test images have no published labels.
UP_TO_VAL = _by_split("train", None, "val")
FLAGGED: dict[Split, Mapping[str, Any]] = {"train": {"train": True}, "test": {"train": False}}
WHOLE: dict[Split, Mapping[str, Any]] = {"train": {}}
MNISTS = ("FashionMNIST", "KMNIST", "MNIST", "USPS")
PUBLISHED = {
    **dict.fromkeys(MNISTS, Published(FLAGGED, labels="targets")),
    "CLEVRClassification": Published(UP_TO_VAL),
    "Country211": Published(_by_split("train", "valid", "test")),
    "DTD": Published(THREE, options=("partition",)),
    "EMNIST": Published(FLAGGED, labels="targets", options=("split",)),
    "EuroSAT": Published(WHOLE),
    "FGVCAircraft": Published(
        THREE, levels=("annotation_level", ("variant", "family", "manufacturer"))
    ),
    "Flowers102": Published(THREE),
    "Food101": Published(TWO),
    "Imagenette": Published(UP_TO_VAL, options=("size",)),
    "Places365": Published(_by_split("train-standard", None, "val"), options=("small",)),
    "RenderedSST2": Published(THREE),
    "SEMEION": Published(WHOLE, labels="labels"),
    "SUN397": Published(WHOLE),
    "SVHN": Published(TWO, labels="labels"),
    "StanfordCars": Published(TWO),
}


@SOURCES.declare("torchvision", "mtcon_ray.data.sources.torchvision_data:TorchvisionSource")
class TorchvisionDataSpec(DrawnSplitSpec):
    """A data set of torchvision, by the name of its class."""

    kind: Literal["torchvision"] = "torchvision"
    name: str = Field(description=f"class of torchvision.datasets: {', '.join(sorted(PUBLISHED))}")
    folder: LocalPath = Field(description="torchvision's root, where the data set lies or is put")
    tasks: tuple[str, ...] = Field(
        (LABEL,), min_length=1, description="labels to train on (only FGVCAircraft has several)"
    )
    download: bool = Field(False, description="download the data set if it is missing")
    options: dict[str, str | int | bool] = Field(
        {}, description="further arguments of the class, such as size of Imagenette"
    )

    @model_validator(mode="after")
    def _data_set_is_known(self) -> Self:
        if self.name not in PUBLISHED:
            raise ValueError(
                "name must be a data set of torchvision that has images with one class and no "
                f"pickles, got {self.name!r}{nearest(self.name, PUBLISHED)}; CIFAR10, "
                "CIFAR100, STL10 and CelebA have a kind of their own, and other images fit "
                "kind: folder or table"
            )
        known, labels = PUBLISHED[self.name], (*self.tasks, *self.held_out)
        for option in self.options:
            if option not in known.options:
                raise ValueError(
                    f"options of {self.name} must be among {list(known.options)}, got {option!r}"
                )
        if known.levels is None and len(labels) > 1:
            raise ValueError(f"{self.name} must have one label, got {list(labels)}")
        if known.levels is not None and not set(labels) <= set(known.levels[1]):
            raise ValueError(
                f"labels of {self.name} must be among {list(known.levels[1])}, got {list(labels)}"
            )
        return self
