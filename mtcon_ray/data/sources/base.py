"""What every data source offers: labels at once and cheaply, images one by one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from mtcon_ray.data.batch import MISSING, UNKNOWN_BIT, Kind
from mtcon_ray.data.decoding import Resize
from mtcon_ray.data.image_check import CheckedImages
from mtcon_ray.data.splits import LEFT_OUT, SPLITS, Split
from mtcon_ray.registry import Spec, Table, is_url

__all__ = [
    "LEFT_OUT",
    "MISSING",
    "SOURCES",
    "SPLITS",
    "UNKNOWN_BIT",
    "BadImagesError",
    "DataSource",
    "DataSpec",
    "LabelTable",
    "Split",
]


class DataSpec(Spec):
    """What every kind of data has; each kind adds its own fields."""

    kind: str
    tasks: tuple[str, ...] = Field(
        min_length=1, description="labels to train on: columns of classes, sets or numbers"
    )
    held_out: tuple[str, ...] = Field(
        (), description="labels never trained on, read once at the end"
    )
    seed: int = Field(
        0, ge=0, lt=2**31, description="of splits, label noise and drawn images; repeats share it"
    )
    held_out_top_k: int | None = Field(
        None, ge=2, description="keep the k most frequent held-out classes, mask the rest"
    )
    label_noise: dict[str, float] = Field(
        {}, description="task to the share of its labels that are redrawn uniformly"
    )
    label_noise_splits: tuple[Split, ...] = Field(
        ("train",), description="splits whose labels are redrawn"
    )
    store_size: int | None = Field(
        None, ge=8, le=2048, description="side of stored images; null: 1.25 x views.size"
    )

    def kind_of(self, name: str) -> Kind:
        """What the labels of a task or held-out name are: classes, unless a kind says otherwise."""
        return "classes"

    @property
    def made_square(self) -> Resize:
        """How images become square; drawn ones are."""
        return "squash"

    def urls(self) -> dict[str, str]:
        """Field to URL, of what lies in an object store."""
        return {name: v for name, v in self if isinstance(v, str) and is_url(v)}

    @model_validator(mode="after")
    def _labels_are_consistent(self) -> Self:
        columns = [*self.tasks, *self.held_out]
        twice = sorted({c for c in columns if columns.count(c) > 1})
        if twice:
            raise ValueError(f"tasks and held_out must not repeat a column, got {twice} twice")
        for task, share in self.label_noise.items():
            if task not in self.tasks:
                raise ValueError(f"label_noise must name tasks, got {task!r}; tasks: {self.tasks}")
            if self.kind_of(task) != "classes":
                raise ValueError(
                    f"label_noise must name columns of classes, got {task!r}, whose labels are a "
                    f"{self.kind_of(task)}"
                )
            if not 0 <= share <= 1:
                raise ValueError(f"label_noise must lie in [0, 1], got {task}: {share}")
        kinds = {column: self.kind_of(column) for column in self.held_out}
        if self.held_out_top_k is not None and kinds and "classes" not in kinds.values():
            raise ValueError(
                "held_out_top_k must go with a held-out column of classes, got "
                f"{self.held_out_top_k} with {kinds}; leave it out"
            )
        return self


@dataclass(frozen=True)
class LabelTable:
    """The labels of N items, before any image is decoded. Arrays are shared: do not write.

    labels[column] is int64 [N], MISSING (-1) where unknown; classes[column] its class names in
    sorted order. Once a data set is read, classes are those of the train and val splits; unseen
    has the names of the others by column, whose codes count on from len(classes[column]), so that
    no network or probe has an output for them. multi_hot[name] is uint8 [N, L] of 0 and 1,
    UNKNOWN_BIT (255) where unknown, with its L names in multi_hot_names; continuous[column] is
    float64 [N], NaN where unknown.
    split is int8 [N], an index of SPLITS, LEFT_OUT (-1) for items whose image cannot be read.
    """

    names: tuple[str, ...]
    labels: dict[str, np.ndarray]
    classes: dict[str, tuple[str, ...]]
    split: np.ndarray
    multi_hot: dict[str, np.ndarray] = field(default_factory=dict)
    multi_hot_names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    continuous: dict[str, np.ndarray] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    unseen: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.split)

    def kind_of(self, name: str) -> Kind:
        """What the labels of this name are."""
        if name in self.labels:
            return "classes"
        return "set" if name in self.multi_hot else "number"

    def known(self, name: str) -> np.ndarray:
        """Where anything of a label is known, bool [N]: of a set, one bit at least."""
        if name in self.labels:
            return np.asarray(self.labels[name] != MISSING)
        if name in self.multi_hot:
            return np.asarray((self.multi_hot[name] != UNKNOWN_BIT).any(axis=1))
        return np.asarray(~np.isnan(self.continuous[name]))

    def standardised(self, name: str) -> np.ndarray:
        """A column of numbers in deviations from the mean, both of the train split: float64 [N]."""
        mean, deviation = self.moments(name)
        return np.asarray((self.continuous[name] - mean) / deviation)

    def moments(self, name: str) -> tuple[float, float]:
        """Mean and deviation of a column of numbers over the train split."""
        train = self.continuous[name][self.rows("train")]
        return float(np.nanmean(train)), float(np.nanstd(train))

    def size_of(self, name: str) -> int:
        """Number of a column's classes in train and val, of labels in a set, or 1 for numbers."""
        if name in self.classes:
            return len(self.classes[name])
        return len(self.multi_hot_names[name]) if name in self.multi_hot_names else 1

    def rows(self, split: Split) -> np.ndarray:
        """Indices of the items of one split, ascending int64."""
        return np.flatnonzero(self.split == SPLITS.index(split))


class DataSource(ABC):
    """One kind of data. Subclasses nest a `Spec` and are registered in SOURCES.

    Constructing reads nothing; `seed` is the run's seed (only label noise follows it).
    """

    Spec: ClassVar[type[DataSpec]]

    def __init__(self, spec: DataSpec, seed: int) -> None:
        self.spec = spec
        self.seed = seed

    @abstractmethod
    def read_labels(self) -> LabelTable:
        """All labels, classes and splits, label noise not yet applied; cheap. Raises DataError."""

    @abstractmethod
    def content_key(self) -> str:
        """Hex digest that changes whenever any image's content or order does."""

    def signature(self) -> str | None:
        """A cheap stand-in for `content_key`: where two are equal, so are those; None: no such."""
        return None

    @abstractmethod
    def decode(self, rows: Sequence[int], size: int) -> np.ndarray:
        """Images of these rows, uint8 [len(rows), size, size, 3].

        Raises BadImagesError naming every row of the call that cannot be decoded.
        """

    def check_images(self, size: int) -> CheckedImages:
        """Returns images that are missing or corrupt, as far as can be seen in a second.

        No more than a few are decoded. Raises DataError where too many are bad.
        """
        return CheckedImages()

    @property
    def max_bad_fraction(self) -> float:
        """Share of images that may fail to decode before the run stops."""
        return 0.0


class BadImagesError(Exception):
    """Images of one `decode` call that are missing or corrupt: row to reason."""

    def __init__(self, reasons: dict[int, str], images: np.ndarray) -> None:
        super().__init__(reasons)
        self.reasons = reasons
        self.images = images  # the call's images, zeros at the bad rows


SOURCES: Table[DataSource] = Table("kind of data")
