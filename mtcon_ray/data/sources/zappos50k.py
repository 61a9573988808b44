"""UT Zappos50K, a catalogue of shoes (Yu and Grauman 2014, CVPR), as it unpacks.

Tasks and recipe are those of MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712).
"""

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import unquote

import numpy as np
from pydantic import Field, field_validator

from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.download import DownloadSource, DownloadSpec, Part, mscon_recipe
from mtcon_ray.data.sources.files import FilesSource, FilesSpec
from mtcon_ray.data.splits import LEFT_OUT, SPLITS, common, stratified_split
from mtcon_ray.data.table_file import TableFile, encode_columns, read_table_file
from mtcon_ray.data.text_file import read_lines
from mtcon_ray.errors import DataError, nearest

SPLIT_FRACTIONS = (0.7, 0.1, 0.2)
# MSCon's list is also that of CSN (Veit, Belongie and Karaletsos 2017, arXiv:1603.07810).
CLOSURES = {
    "mscon": ("Buckle", "Hook and Loop", "Lace up", "Pull-on", "Slip-On"),
    "ccn": ("Hook and Loop", "Lace up", "Pull-on", "Slip-On", "Zipper"),
}
GENDERS = ("Boys", "Girls", "Men", "Women")
# The columns of meta-data.csv by label; brand is a folder instead.
COLUMNS = {
    "category": "Category",
    "subcategory": "SubCategory",
    "heel_height": "HeelHeight",
    "insole": "Insole",
    "closure": "Closure",
    "gender": "Gender",
    "material": "Material",
    "toe_style": "ToeStyle",
}
Label = Literal[
    "category", "subcategory", "heel_height", "insole", "closure", "gender", "material",
    "toe_style", "brand",
]  # fmt: skip
CSN_PAGE = "https://github.com/andreasveit/conditional-similarity-networks"
CONDITIONS = ("class", "closure", "gender", "heel")  # CSN's lists of triplets


@SOURCES.register("zappos50k")
class ZapposSource(FilesSource, DownloadSource):
    """The labels of meta-data.csv, and the brand, which only the images' folders name."""

    class Spec(FilesSpec, DownloadSpec):
        """UT Zappos50K; a cell with several values is a label only where one of them is listed."""

        kind: Literal["zappos50k"] = "zappos50k"
        tasks: tuple[Label, ...] = Field(
            ("category", "closure", "gender"), min_length=1, description="labels to train on"
        )
        held_out: tuple[Label, ...] = Field(
            ("brand",), description="labels never trained on, probed once at the end"
        )
        held_out_top_k: int | None = Field(
            20, ge=2, description="keep the k most frequent held-out classes; others become missing"
        )
        closures: Literal["mscon", "ccn"] | tuple[str, ...] = Field(
            "mscon",
            min_length=2,
            description="classes of closure: MSCon's list (with Buckle), CCN's (with Zipper), or "
            "one of your own",
        )
        split: Literal["random", "csn"] = Field(
            "random",
            description="random: 70/10/20 of each category, by seed; csn: the images in CSN's "
            "lists of triplets",
        )
        group_by_product: bool = Field(
            False,
            description="random split: all colours of a product in one split, unlike the papers",
        )
        image_folder: str = Field(
            "ut-zap50k-images",
            min_length=1,
            description="folder of the images below root; ut-zap50k-images-square: the square ones",
        )

        @field_validator("closures")
        @classmethod
        def _check_closures(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
            if isinstance(value, str):
                return value
            keys = [_key(name) for name in value]
            twice = [name for name, key in zip(value, keys, strict=True) if keys.count(key) > 1]
            if twice:
                raise ValueError(
                    f"must name different classes, got {twice[0]!r} and {twice[1]!r}, which differ "
                    "in letter case and punctuation at most"
                )
            return value

    page = "https://vision.cs.utexas.edu/projects/finegrained/utzap50k/"
    num_items = 50_025
    num_classes: ClassVar[Mapping[str, int]] = {"category": 4}
    recipe: ClassVar[Mapping[str, Any]] = mscon_recipe(112, "resnet18", head_dim=32)
    spec: Spec

    def parts(self) -> dict[str, Part]:
        labels = ("ut-zap50k-data/meta-data.csv", "meta-data.csv")
        folder = self.spec.image_folder
        found = {
            "images": Part((folder,), f"{folder}.zip", self.page),
            "labels": Part(labels, "ut-zap50k-data.zip", self.page),
        }
        if self.spec.split == "csn":
            archive = "csn_zappos_triplets.zip"
            files = ("filenames.json", "tripletlists/filenames.json")
            found["triplets"] = Part(("tripletlists",), archive, CSN_PAGE)
            found["file names of triplets"] = Part(files, archive, CSN_PAGE)
        return found

    @cached_property
    def files(self) -> ImageFolder:
        return self.folder("images")

    @cached_property
    def _csv(self) -> TableFile:
        return read_table_file(self.path("labels"))

    @cached_property
    def names(self) -> list[str]:
        # Found by their ids: a brand's folder that ends in a dot has other names on some systems.
        found: dict[str, str] = {}
        for name in self.files.names():
            cid = _cid(name)
            found[cid] = min(name, found.get(cid, name))
        ids = self._csv.column("CID")
        names = [found.get(cid, f"{cid.replace('-', '.')}.jpg") for cid in ids]
        self.refuse_outside(names, self._csv.path)
        return names

    def read_labels(self) -> LabelTable:
        labels, classes = encode_columns({c: self._values(c) for c in self.columns})
        split, warnings = self._read_split()
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=split,
            warnings=warnings,
        )

    def _values(self, label: str) -> np.ndarray:
        """Returns each item's value of a label, object [N] of str, "" without a single one."""
        if label == "brand":
            return np.array([_brand(name) for name in self.names], dtype=object)
        cells = self._csv.column(COLUMNS[label])
        values = {cell: {v.strip() for v in cell.split(";")} - {""} for cell in set(cells)}
        if label in ("closure", "gender"):
            listed = {
                _key(name): name for name in self._listed(label, set().union(*values.values()))
            }
            values = {
                c: {listed[_key(v)] for v in vs if _key(v) in listed} for c, vs in values.items()
            }
        single = {cell: min(found) if len(found) == 1 else "" for cell, found in values.items()}
        return np.array([single[cell] for cell in cells], dtype=object)

    def _listed(self, label: str, present: set[str]) -> tuple[str, ...]:
        """Returns the classes of a label. Raises DataError if the user lists one without images."""
        if label == "gender":
            return GENDERS
        if isinstance(self.spec.closures, str):
            return CLOSURES[self.spec.closures]
        for name in self.spec.closures:
            if _key(name) not in map(_key, present):
                raise DataError(
                    f"data.closures must name values of column {COLUMNS[label]!r} of "
                    f"{self._csv.path}, got {name!r}{nearest(name, present)}"
                )
        return self.spec.closures

    def _read_split(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Returns each item's split, int8 [N], and warnings about it."""
        cids, spec = self._csv.column("CID"), self.spec
        if spec.split == "csn":
            return self._csn_split(cids)
        groups, category = cids, self._csv.column(COLUMNS["category"])
        if spec.group_by_product:
            groups = np.array([cid.partition("-")[0] for cid in cids], dtype=object)
            category = common(category, groups)  # a product may have images in two
        return stratified_split(category, groups, SPLIT_FRACTIONS, spec.seed), ()

    def _csn_split(self, cids: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """Returns the split that CSN's triplets imply; images in no list are in no split."""
        row_of = {cid: row for row, cid in enumerate(cids)}
        files = self.path("file names of triplets")
        row_of_line = np.array([row_of.get(_cid(line), -1) for line in read_lines(files)])
        split = np.full(len(cids), LEFT_OUT, dtype=np.int8)
        num_twice = 0
        # In this order: an image of two splits counts as test before val, and as val before train.
        for code, name in enumerate(SPLITS):
            rows = row_of_line[_images_of_triplets(self.path("triplets"), name, len(row_of_line))]
            rows = rows[rows >= 0]
            num_twice += int((split[rows] != LEFT_OUT).sum())
            split[rows] = code
        unused = int((split == LEFT_OUT).sum())
        warnings = [f"{unused} images are in none of CSN's lists and in no split"] * bool(unused)
        if num_twice:
            warnings.append(
                f"{num_twice} images are in CSN's lists of two splits; test is preferred to val, "
                "and val to train"
            )
        return split, tuple(warnings)


def _cid(path: str) -> str:
    """Returns the id of an image's file: 100627-72 of Shoes/Oxfords/Bostonian/100627.72.jpg."""
    return path.strip().rpartition("/")[2].removesuffix(".jpg").replace(".", "-")


def _brand(name: str) -> str:
    """Returns the third folder of a name, alike on systems that store a last dot as %2E or not."""
    folders = name.split("/")
    return unquote(folders[2]).rstrip(". ") if len(folders) == 4 else ""


def _key(value: str) -> str:
    """Returns a value without letter case and punctuation: `Slip-On` equals `Slip On`."""
    return re.sub(r"[^a-z0-9]+", " ", value.lower()).strip()


def _images_of_triplets(folder: Path, split: str, num_images: int) -> np.ndarray:
    """Returns the images of a split's triplets, ascending int64 below `num_images`.

    Raises DataError if a list is missing or holds anything but such numbers.
    """
    lists = [folder / f"{condition}_tripletlist_{split}.txt" for condition in CONDITIONS]
    used = []
    for path in lists:
        try:
            used.append(np.array(" ".join(read_lines(path)).split(), dtype=np.int64))
        except ValueError as error:
            raise DataError(f"{path} must hold numbers of images, got {error}") from None
        if used[-1].size and not 0 <= used[-1].min() <= used[-1].max() < num_images:
            raise DataError(
                f"{path} must hold numbers from 0 to {num_images - 1}, the lines of "
                f"filenames.json, got {used[-1].min()} to {used[-1].max()}"
            )
    return np.unique(np.concatenate(used))
