"""Data sets of the papers, and the stand-ins for images that a user does not have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mtcon_ray.errors import DataError

CHOICES = ("paper", "photos", "synthetic")


class MissingImagesError(DataError):
    """The chosen images of a data set are missing."""


@dataclass(frozen=True)
class StandIn:
    """Images in place of a paper's: the `data` section, and their column for each label."""

    title: str
    columns: Mapping[str, str]
    data: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""  # of photographs, below --photos


@dataclass(frozen=True)
class DataSet:
    """A data set of the papers, with its name and its labels' names as in paper_values.csv.

    `columns` renames the labels with another name in the data kind. `classes` has the papers'
    number of classes of a label, or of labels in a set.
    """

    name: str
    title: str
    kind: str
    tasks: tuple[str, ...]
    held_out: tuple[str, ...]
    photos: StandIn
    synthetic: StandIn
    columns: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """All labels, tasks first."""
        return (*self.tasks, *self.held_out)


@dataclass(frozen=True)
class Source:
    """The images for running a data set: the `data` section without tasks, and its columns.

    `choice` is an element of CHOICES.
    """

    choice: str
    title: str
    data: Mapping[str, Any]
    columns: Mapping[str, str]

    @property
    def is_stand_in(self) -> bool:
        """True if these are not the images of the paper."""
        return self.choice != "paper"

    def name_label(self, label: str) -> str:
        """Returns a label's name for readers, with its column if the column's name differs."""
        column = self.columns[label]
        return label if column == label else f"{label} ({column})"


def _shoes(**columns: str) -> StandIn:
    return StandIn("photographs of shoes", columns, folder="fashion_shoes")


def _products(**columns: str) -> StandIn:
    return StandIn("photographs of products", columns, folder="fashion_products")


def _synthetic(seed: int, **columns: str) -> StandIn:
    # With separate seeds, because equal seeds would give two data sets the same images.
    return StandIn("synthetic images", columns, {"kind": "synthetic", "seed": seed})


# The 40 attributes of photographs of products, in CelebA's format.
ATTRIBUTES = "attributes"
ATTRIBUTES_FILE = "list_attr_fashion.txt"

DATA_SETS = {
    each.name: each
    for each in (
        DataSet(
            "zappos50k",
            "UT Zappos50K",
            "zappos50k",
            tasks=("category", "closure", "gender"),
            held_out=("brand",),
            photos=_shoes(category="category", closure="colour", gender="gender", brand="brand"),
            synthetic=_synthetic(
                0, category="shape", closure="texture", gender="colour", brand="tilt"
            ),
            classes={"category": 4, "closure": 5, "gender": 4, "brand": 20},
        ),
        DataSet(
            "medic",
            "MEDIC",
            "medic",
            tasks=("damage_severity", "disaster_types", "humanitarian", "informative"),
            held_out=(),
            photos=_products(
                damage_severity="season",
                disaster_types="category",
                humanitarian="usage",
                informative="gender",
            ),
            synthetic=_synthetic(
                1,
                damage_severity="tilt",
                disaster_types="shape",
                humanitarian="colour",
                informative="texture",
            ),
            classes={
                "damage_severity": 3,
                "disaster_types": 7,
                "humanitarian": 4,
                "informative": 2,
            },
        ),
        DataSet(
            "cub200_2011",
            "CUB-200-2011",
            "cub200",
            tasks=("shape", "size", "primary_color"),
            held_out=("species",),
            # A product's category determines its department, like a bird's species its shape.
            photos=_products(
                shape="department", size="gender", primary_color="colour", species="category"
            ),
            synthetic=_synthetic(
                2, shape="shape", size="texture", primary_color="colour", species="mark"
            ),
            classes={"shape": 14, "size": 5, "primary_color": 15, "species": 200},
        ),
        DataSet(
            "celeba_64",
            "CelebA",
            "celeba",
            tasks=("40_attributes",),
            held_out=(),
            photos=_products(**{"40_attributes": ATTRIBUTES}),
            synthetic=_synthetic(3, **{"40_attributes": "attributes"}),
            columns={"40_attributes": ATTRIBUTES},
            classes={"40_attributes": 40},
        ),
        DataSet(
            "stl10",
            "STL-10",
            "stl10",
            tasks=("class",),
            held_out=(),
            photos=_products(**{"class": "category"}),
            synthetic=_synthetic(4, **{"class": "shape"}),
            classes={"class": 10},
        ),
    )
}


@dataclass(frozen=True)
class DataChoice:
    """The user's choice of images: an element of CHOICES for all, or None for the best available.

    `paper_data` holds a folder for each kind of data, such as zappos50k. `photos` holds
    fashion_shoes and fashion_products. Subsets of their tables are written to `subsets`.
    """

    only: str | None
    photos: Path | None
    paper_data: Path | None
    subsets: Path

    def source(self, name: str, num_items: int | None) -> Source:
        """Returns the images for a data set of the papers: at most `num_items` of a stand-in.

        Raises MissingImagesError if the chosen images are missing.
        """
        data_set = DATA_SETS[name]
        for choice in (self.only,) if self.only else CHOICES:
            found = getattr(self, f"_{choice}")(data_set, num_items)
            if found is not None:
                return Source(choice, *found)
        raise MissingImagesError(self._missing(data_set))

    def _missing(self, data_set: DataSet) -> str:
        if self.only == "photos":
            where = f"{data_set.photos.folder}/labels.csv below --photos"
            return f"{data_set.title} needs {where}, got {self.photos}"
        return f"{data_set.title} needs {data_set.kind} below --paper-data, got {self.paper_data}"

    def _paper(self, data_set: DataSet, num_items: int | None) -> tuple[Any, ...] | None:
        root = self.paper_data and self.paper_data / data_set.kind
        if root is None or not root.is_dir():
            return None
        columns = {label: data_set.columns.get(label, label) for label in data_set.labels}
        return data_set.title, {"kind": data_set.kind, "root": str(root)}, columns

    def _photos(self, data_set: DataSet, num_items: int | None) -> tuple[Any, ...] | None:
        stand_in = data_set.photos
        folder = self.photos and self.photos / stand_in.folder
        if folder is None or not (folder / "labels.csv").is_file():
            return None
        table = subset(folder / "labels.csv", num_items, self.subsets)
        data: dict[str, Any] = {
            "kind": "table",
            "csv": str(table),
            "images": str(folder / "images.tar.gz"),
            "group_column": "group_id",  # photographs of one product
        }
        if ATTRIBUTES in stand_in.columns.values():
            path = folder / ATTRIBUTES_FILE
            data |= {"attributes": str(path), "multi_hot": {ATTRIBUTES: _attribute_names(path)}}
        return stand_in.title, data, stand_in.columns

    def _synthetic(self, data_set: DataSet, num_items: int | None) -> tuple[Any, ...] | None:
        stand_in = data_set.synthetic
        items = {} if num_items is None else {"num_items": num_items}
        return stand_in.title, {**stand_in.data, **items}, stand_in.columns


def subset(table: Path, num_items: int | None, folder: Path) -> Path:
    """Returns a CSV with `num_items` random rows of a table, or the table if it has no more rows.

    The rows are the same at each call, in the table's order. The file is written once.
    """
    rows = pd.read_csv(table, dtype=str, keep_default_na=False)
    if num_items is None or len(rows) <= num_items:
        return table
    kept = np.sort(np.random.default_rng(0).permutation(len(rows))[:num_items])
    path = folder / f"{table.parent.name}-{num_items}.csv"
    text = rows.iloc[kept].to_csv(index=False)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def _attribute_names(path: Path) -> list[str]:
    """Returns the names in line 2 of a file in CelebA's format. Raises DataError without names."""
    try:
        return path.read_text(encoding="utf-8").splitlines()[1].split()
    except (OSError, IndexError) as error:
        raise DataError(f"{path} must have the names of attributes in line 2: {error}") from None
