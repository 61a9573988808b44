"""Base of the kinds of data that read a published download as it unpacks."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES, DataSource, DataSpec
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.registry import LocalPath
from mtcon_ray.regular_file import open_regular

# What a spec on a published data set has from its paper's recipe unless it says otherwise: what
# follows from the images. Epochs, rate and method are the user's choice; `mtcon-ray prepare`
# prints those of the paper.
RECIPE_DEFAULTS = ("views.size", "model.encoder", "train.batch_size")


@dataclass(frozen=True)
class Part:
    """A file or folder of a download.

    It is the first of `places`, which are paths below the root, that exists. `archive` holds it,
    and is found on `page`. md5 has the published digests of files, by file name.
    """

    places: tuple[str, ...]
    archive: str
    page: str
    md5: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Returns where the part may lie, and where to get it."""
        return f"{' or '.join(self.places)}, from {self.archive} of {self.page}"

    def find(self, root: Path) -> Path | None:
        """Returns the part's path below the root, None if it is not there."""
        return next((root / place for place in self.places if (root / place).exists()), None)


class DownloadSpec(DataSpec):
    """Spec fields common to all kinds of data that read a download."""

    root: LocalPath = Field(
        min_length=1, description="folder into which the data set's archives were unpacked"
    )


class DownloadSource(DataSource):
    """Base class of the kinds of data that read a download; `mtcon-ray prepare` checks it.

    page is the address of the data set. num_items is the published number of images, and num_split
    that of each split where splits are published; num_classes has those of labels, by label, where
    all classes must occur. recipe has the values of other sections of the
    spec that the data set's paper uses, by dotted path; see `with_recipe_defaults`.
    """

    Spec: ClassVar[type[DownloadSpec]]
    page: ClassVar[str]
    num_items: ClassVar[int]
    num_split: ClassVar[tuple[int, int, int] | None] = None
    num_classes: ClassVar[Mapping[str, int]] = {}
    recipe: ClassVar[Mapping[str, Any]]
    spec: DownloadSpec

    @property
    def columns(self) -> tuple[str, ...]:
        """The label columns that the spec names."""
        return (*self.spec.tasks, *self.spec.held_out)

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Returns the files and folders that the spec needs, by what they hold."""

    def path(self, what: str) -> Path:
        """Returns the path of a part. Raises DataError, with its origin, if it is not there."""
        part, root = self.parts()[what], Path(self.spec.root)
        found = part.find(root)
        if found is None:
            raise DataError(f"data.root must hold {what} ({part}), got {root}, where they are not")
        return found

    def missing(self) -> list[str]:
        """Returns a line for each part that is not there."""
        return [
            f"{what}: {part}"
            for what, part in self.parts().items()
            if part.find(Path(self.spec.root)) is None
        ]

    def differences(self, table: LabelTable) -> list[str]:
        """Returns a line for each number, of items or classes, and file unlike the published.

        `table` has the labels of all items.
        """
        counts = {"images": (len(table), self.num_items)}
        if self.num_split is not None:
            for split, published in zip(SPLITS, self.num_split, strict=True):
                counts[f"{split} images"] = len(table.rows(split)), published
        for label, published in self.num_classes.items():
            if label in table.classes:
                counts[f"classes of {label}"] = len(table.classes[label]), published
        found = [
            f"{got:,} {what}, where {published:,} are published"
            for what, (got, published) in counts.items()
            if got != published
        ]
        for what in self.parts():
            path, known = self.path(what), self.parts()[what].md5
            if path.name in known and _md5(path) != known[path.name]:
                found.append(f"{path} has another MD5 than the published {known[path.name]}")
        return found

    def archive_at_root(
        self, name: str, md5: Mapping[str, str], *, folder: str = ""
    ) -> dict[str, Part]:
        """Returns an archive, by its name, that still lies at the root; {} if it does not.

        It may lie in a folder there. It is not needed once it is unpacked, but its digest shows
        whether it is whole.
        """
        part = Part((name, f"{folder}{name}"), name, self.page, md5)
        return {} if part.find(Path(self.spec.root)) is None else {name: part}

    def folder(self, what: str) -> ImageFolder:
        """Returns a part as a folder of images. Raises DataError if it is not there."""
        return ImageFolder(self.path(what))


def with_recipe_defaults(raw: Any) -> Any:
    """Returns a spec's plain data, with the default fields of the recipe of its published data set.

    Fields that the data have stay, as do the data of a spec on other images.
    """
    data = raw.get("data") if isinstance(raw, dict) else None
    kind = data.get("kind") if isinstance(data, dict) else None
    source = SOURCES[kind] if isinstance(kind, str) and kind in SOURCES else DataSource
    if not issubclass(source, DownloadSource):
        return raw
    for path in RECIPE_DEFAULTS:
        section, field_name = path.split(".")
        given = raw.get(section, {})
        if path in source.recipe and isinstance(given, dict):
            raw = raw | {section: {field_name: source.recipe[path], **given}}
    return raw


def mscon_recipe(size: int, encoder: str, *, head_dim: int) -> dict[str, Any]:
    """Returns the settings of MSCon and MTCon for views of `size` pixels.

    Mu, Guttag and Makar 2023, arXiv:2307.02712; MTCon states the same.
    """
    return {
        "views.size": size,
        "model.encoder": {"name": encoder, "weights": "imagenet"},
        "model.head_dim": head_dim,
        "train.epochs": 200,
        "train.batch_size": 64,
        "train.lr": 0.05,
    }


def _md5(path: Path) -> str:
    with open_regular(path) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
