"""Base of the kinds of data from a published download, read as it unpacks."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from mtcon_ray.data.column import Column
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import DataSource, FilesSource
from mtcon_ray.data.splits import stratified_split
from mtcon_ray.data.table_file import encode_classes
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import SPLIT_FRACTIONS
from mtcon_ray.spec.data.published import DownloadSpec, PhotosSpec


class Part(NamedTuple):
    """A file or folder of a download: the first existing path of `places`, below the root.

    `origin` names the archive of the part, and the archive's page.
    """

    places: tuple[str, ...]
    origin: str

    def __str__(self) -> str:
        """Returns where the part may lie, and where to get it."""
        return f"{' or '.join(self.places)}, from {self.origin}"


class DownloadSource(DataSource):
    """Base class of the kinds of data from a download, which `mtcon-ray prepare` checks.

    page is the address of the data set, num_items the published number of images. Files in which
    the number is fixed need no num_items.
    """

    page: ClassVar[str]
    num_items: ClassVar[int | None] = None
    spec: DownloadSpec

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Returns the files and folders needed by the spec, by their content."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The name of each item."""

    @abstractmethod
    def read_split(self) -> np.ndarray:
        """Returns each item's split, int8 [N]."""

    def cells(self, label: str) -> np.ndarray:
        """Returns each item's class, object [N] of str, "" where unknown."""
        raise NotImplementedError

    def drawn(self, strata: np.ndarray, groups: np.ndarray) -> np.ndarray:
        """Returns a random split, int8 [N], with the same shares in each stratum."""
        return stratified_split(strata, groups, SPLIT_FRACTIONS, self.spec.seed)

    def bits(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Returns the bits of the label set, uint8 [N, L], and its L names."""
        raise NotImplementedError

    def doubts(self, table: LabelTable) -> list[str]:
        """Returns warnings of the labels."""
        return []

    def read_labels(self) -> LabelTable:
        spec, names = self.spec, tuple(self.names)
        columns = (*spec.tasks, *spec.held_out)
        found = {c: encode_classes(Column.of(self.cells(c))) for c in columns if c not in spec.sets}
        sets = {c: self.bits() for c in columns if c in spec.sets}
        table = LabelTable(
            names=names,
            labels={column: codes for column, (codes, _) in found.items()},
            classes={column: classes for column, (_, classes) in found.items()},
            split=self.read_split(),
            multi_hot={column: bits for column, (bits, _) in sets.items()},
            multi_hot_names={column: labels for column, (_, labels) in sets.items()},
        )
        return replace(table, warnings=tuple(self.doubts(table)))

    def find(self, what: str) -> Path | None:
        """Returns the path of a part, None if the part does not exist."""
        places = [Path(self.spec.root) / place for place in self.parts()[what].places]
        return next((place for place in places if place.exists()), None)

    def path(self, what: str) -> Path:
        """Returns the path of a part. Raises DataError, with its origin, if the part is missing."""
        if found := self.find(what):
            return found
        raise DataError(f"{what} ({self.parts()[what]}) not found in data.root {self.spec.root}")

    def missing(self) -> list[str]:
        """Returns a line for each missing part."""
        return [f"{w}: {part}" for w, part in self.parts().items() if self.find(w) is None]

    def differences(self) -> list[str]:
        """Returns a warning if the number of images is not the published number."""
        found, published = len(self.names), self.num_items
        if published in (found, None):
            return []
        return [f"{found:,} images, where {published:,} are published"]


class PhotosSource(FilesSource, DownloadSource):
    """Base class of the published data sets with images as files in the part "images"."""

    spec: PhotosSpec

    @cached_property
    def files(self) -> ImageFolder:
        return ImageFolder(self.path("images"))
