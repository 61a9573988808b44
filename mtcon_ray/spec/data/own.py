"""Sections of a user's own data (tables, folders) and of synthetic images."""

from typing import Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import LocalPath, PathOrUrl, Text
from mtcon_ray.spec.data.base import MAX_LABELS, SOURCES, DataSpec, DrawnSplitSpec, HeldOut

LIST_SEPARATOR = "|"  # unless the spec names another
SEPARATORS = (LIST_SEPARATOR, ";", ",")  # as tables often have them
ARCHIVES = (".tar", ".tar.gz", ".tgz")
SPLIT_COLUMN = "split"


@SOURCES.declare("table", "mtcon_ray.data.sources.table:TableSource")
class TableSpec(DrawnSplitSpec):
    """A CSV and its images."""

    split_column: str | None = Field(
        SPLIT_COLUMN, description="of train, val or test (null, or no column split: at random)"
    )
    group_column: str | None = Field(None, description="splits and intervals keep groups whole")
    stratify: tuple[str, ...] = Field((), description="columns with equal shares in random splits")
    multi_hot: dict[str, tuple[str, ...] | str] = Field(
        {},
        max_length=MAX_LABELS,
        description="label set's name to its columns of 0 and 1, or to a column of lists",
    )
    multi_hot_separator: Text = Field(LIST_SEPARATOR, description="between the names of a list")
    images: PathOrUrl = Field(description="path or URL of a folder, .tar or .tar.gz of images")
    csv: PathOrUrl = Field(description="path or URL of a UTF-8 CSV with header and a row per image")
    image_column: str = Field("image", description="column of image paths, relative to `images`")
    attributes: PathOrUrl | None = Field(
        None, description="further columns of 1 and -1 in CelebA's format, by image file name"
    )

    @model_validator(mode="after")
    def _urls_end_as_files_or_folders(self) -> Self:
        for name, url in self.urls().items():
            ends = (*ARCHIVES, "/")
            if name == "images" and not url.endswith(ends):
                raise ValueError(f"images must end in {', '.join(ends)} (/: a folder), got {url}")
            if name in ("csv", "attributes") and url.endswith("/"):
                raise ValueError(f"{name} must be one file, got the folder {url}")
        return self

    def kind_of(self, name: str) -> Kind:
        return "set" if name in self.multi_hot else "classes"


@SOURCES.declare("folder", "mtcon_ray.data.sources.class_folders:FolderSource")
class FolderSpec(DrawnSplitSpec):
    """Images in folders named after their classes."""

    images: LocalPath = Field(description="folder, .tar or .tar.gz of the images")
    levels: tuple[str, ...] | None = Field(
        None,
        description="names of the levels of folders, the outermost first, without the level "
        "of train, val and test (null: tasks, then held_out)",
    )

    @model_validator(mode="after")
    def _labels_are_levels(self) -> Self:
        names, labels = list(self.level_names), [*self.tasks, *self.held_out]
        if len(set(names)) < len(names) or not set(labels) <= set(names):
            raise ValueError(f"levels must have unique names, and all of {labels}, got {names}")
        return self

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels."""
        return self.levels if self.levels is not None else (*self.tasks, *self.held_out)


# Name of the label set. All other labels are factors, with classes.
SET = "attributes"
SyntheticLabel = Literal["shape", "colour", "texture", "tilt", "mark", "attributes"]


@SOURCES.declare("synthetic", "mtcon_ray.data.sources.synthetic:SyntheticSource")
class SyntheticSpec(DataSpec):
    """Synthetic images. Labels: shape, colour, texture, tilt, mark, attributes."""

    tasks: tuple[SyntheticLabel, ...] = Field(
        ("shape", "colour", "texture"), description="label columns to train on"
    )
    held_out: HeldOut[SyntheticLabel] = ("tilt",)
    num_items: int = Field(4000, ge=10, le=10**7, description="number of images")
    sets = (SET,)
