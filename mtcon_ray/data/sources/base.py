"""Interface of data sources: labels all at once and cheaply, images in batches of rows."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import Spec, Table, is_url
from mtcon_ray.data.decoding import Resize
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import Split

__all__ = ["SOURCES", "DataSource", "DataSpec", "LabelTable"]


MAX_LABELS = 1_000  # columns in a list of a spec


class DataSpec(Spec):
    """Spec fields common to all kinds of data. Each kind adds its own fields."""

    kind: str
    tasks: tuple[str, ...] = Field(
        max_length=MAX_LABELS,
        description="labels to train on: columns of classes, sets or numbers ([] for a method "
        "without labels)",
    )
    held_out: tuple[str, ...] = Field(
        (), max_length=MAX_LABELS, description="labels never trained on, probed once at the end"
    )
    seed: int = Field(
        0,
        ge=0,
        lt=2**31,
        description="seed of random splits, label noise and synthetic images, the same for all "
        "repeats",
    )
    held_out_top_k: int | None = Field(
        None, ge=2, description="keep the k most frequent held-out classes (others become missing)"
    )
    label_noise: dict[str, float] = Field(
        {}, description="task to the share of its labels replaced by random classes"
    )
    label_noise_splits: tuple[Split, ...] = Field(("train",), description="splits with label_noise")
    store_size: int | None = Field(
        None,
        ge=8,
        le=2048,
        description="side of cached images, pixels (null: 1.25 x views.size, at most the size of "
        "the images if it is fixed)",
    )
    # The side of the images in pixels if it is fixed, else None.
    native_size: ClassVar[int | None] = None

    def kind_of(self, name: str) -> Kind:
        """Returns the kind of a task's or held-out column's labels; "classes" by default."""
        return "classes"

    @property
    def made_square(self) -> Resize:
        """The way to make images square. Synthetic images are square already."""
        return "squash"

    def urls(self) -> dict[str, str]:
        """Returns the URLs of object stores in the spec, by field."""
        return {name: v for name, v in self if isinstance(v, str) and is_url(v)}

    @model_validator(mode="after")
    def _labels_are_consistent(self) -> Self:
        columns = Counter([*self.tasks, *self.held_out])
        twice = sorted(column for column, count in columns.items() if count > 1)
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


class DataSource(ABC):
    """Base class of the kinds of data. Subclasses nest a `Spec` and are registered in SOURCES.

    The constructor reads nothing. Everything random follows spec.seed.
    """

    Spec: ClassVar[type[DataSpec]]

    def __init__(self, spec: DataSpec) -> None:
        self.spec = spec

    @abstractmethod
    def read_labels(self) -> LabelTable:
        """Returns all labels, classes and splits, without label noise. Reads no image.

        Raises DataError if they cannot be read or are inconsistent.
        """

    @abstractmethod
    def content_key(self) -> str:
        """Returns a hex digest, which depends on the content and the order of the images."""

    def signature(self) -> str | None:
        """Returns a digest computed at low cost, or None if the source has no such digest.

        Equal signatures imply equal content keys.
        """
        return None

    @abstractmethod
    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Returns the images of these rows, and {row: reason} of undecodable images.

        The images are uint8 [len(rows), size, size, 3], black where they cannot be decoded. Called
        from several threads.
        """

    def check_images(self, size: int) -> tuple[dict[int, str], str]:
        """Looks for missing and corrupt images for about a second, before all are decoded.

        Returns {row: reason} of images to leave out, and a warning about corrupt images in a
        decoded sample, "" if there are no such images. Raises DataError if too many are bad.
        """
        return {}, ""

    @property
    def max_bad_fraction(self) -> float:
        """Tolerated share of undecodable images, a fraction."""
        return 0.0


SOURCES: Table[DataSource] = Table("kind of data")
