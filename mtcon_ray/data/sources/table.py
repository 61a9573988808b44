"""Data from a CSV with one row per image, and images in a folder or a tar."""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path, PureWindowsPath
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mtcon_ray.data.csv_file import (
    LIST_SEPARATOR,
    CsvFile,
    doubtful_names,
    encode_classes,
    join_attributes,
    read_bits,
    read_csv,
    read_lists,
    read_numbers,
)
from mtcon_ray.data.image_files import ARCHIVES, ImageFiles, open_files
from mtcon_ray.data.sources.base import SOURCES, LabelTable
from mtcon_ray.data.sources.files import DrawnSplitSpec, FilesSource, evenly
from mtcon_ray.data.splits import (
    common,
    drawn_split,
    named_split,
    num_straddling,
    stratified_split,
)
from mtcon_ray.errors import DataError
from mtcon_ray.metrics import Kind
from mtcon_ray.registry import PathOrUrl, is_url

SPLIT_COLUMN = "split"
# Bounds on the cost of a hint: each is a system call, slow on network file systems.
NUM_TRIED, MAX_LISTED = 20, 100_000


@SOURCES.register("table")
class TableSource(FilesSource):
    """Labels from a CSV; an empty cell is a missing label, never a class."""

    class Spec(DrawnSplitSpec):
        """A CSV and its images."""

        kind: Literal["table"] = "table"
        images: PathOrUrl = Field(
            min_length=1,
            description="folder, .tar or .tar.gz of the images; a path, s3://... or gs://...",
        )
        csv: PathOrUrl = Field(
            min_length=1,
            description="CSV with a header, UTF-8, or .parquet; one row per image; a path, "
            "s3://... or gs://...",
        )
        image_column: str = Field(
            "image", description="column with paths of images, relative to `images`"
        )
        split_column: str | None = Field(
            SPLIT_COLUMN,
            description="column of train, val or test; null: a random split, as with the default "
            "where the table has no column of that name",
        )
        group_column: str | None = Field(
            None, description="column whose equal values stay in one part of a random split"
        )
        stratify: tuple[str, ...] = Field(
            (),
            description="columns whose classes have the same shares in each part of a random split",
        )
        attributes: PathOrUrl | None = Field(
            None, description="further columns of 1 and -1 in CelebA's format, by image file name"
        )
        multi_hot: dict[str, tuple[str, ...] | str] = Field(
            {},
            description="label set's name to its columns of 0 and 1, or to one column of lists",
        )
        multi_hot_separator: str = Field(
            LIST_SEPARATOR,
            min_length=1,
            description="separator of names within a cell of a column of lists",
        )
        continuous: tuple[str, ...] = Field((), description="columns of numbers")

        @model_validator(mode="after")
        def _fields_are_consistent(self) -> Self:
            both = sorted(set(self.multi_hot) & set(self.continuous))
            if both:
                raise ValueError(f"multi_hot and continuous must not share a name, got {both[0]!r}")
            for name, url in self.urls().items():
                if name == "images" and not url.endswith((*ARCHIVES, "/")):
                    raise ValueError(
                        f"images must end in {', '.join(ARCHIVES)}, or in / for a folder, got {url}"
                    )
                if name != "images" and url.endswith("/"):
                    raise ValueError(f"{name} must be one file, got the folder {url}")
            return self

        def kind_of(self, name: str) -> Kind:
            if name in self.multi_hot:
                return "set"
            return "number" if name in self.continuous else "classes"

    spec: Spec

    @cached_property
    def _csv(self) -> CsvFile:
        table = read_csv(Path(self.spec.csv))
        if self.spec.attributes is None:
            return table
        images = table.column(self.spec.image_column, "image_column")
        return join_attributes(table, images, Path(self.spec.attributes))

    @cached_property
    def names(self) -> list[str]:
        column, table = self.spec.image_column, self._csv
        cells = table.column(column, "image_column")
        table.refuse(cells == "", column, "name an image")
        names = self.files.relative(list(cells))
        outside = self.files.find_outside(names)
        if outside is not None:
            raise DataError(
                f"column {column!r} of {table.path} must name files inside {self.spec.images}, "
                f"got {cells[outside]!r} in row {table.rows[outside]}"
            )
        return names

    def likely_cause(self, absent: Sequence[str]) -> str:
        """Returns a line with the likely cause of absent names, "" if none is recognised.

        The cause is another column of the table that names files, or an existing file whose name
        differs only in folders, letter case or ending.
        """
        files, column = self.files, self.spec.image_column
        for other, cells in self._csv.columns.items():
            names = files.relative(cells[evenly(len(cells), NUM_TRIED)])
            if other != column and sum(map(files.exists, names)) > len(names) / 2:
                return f"\ndid you mean image_column: {other!r}?"
        there = defaultdict(list)
        for path in islice(files.names(), MAX_LISTED):
            there[_stem(path)].append(path)
        for name in (absent[i] for i in evenly(len(absent), NUM_TRIED)):
            if same := there.get(_stem(name)):
                found = get_close_matches(name, same, n=1, cutoff=0)[0]
                return (
                    f"\n{name!r} is there as {found!r}: column {column!r} must hold paths as they "
                    "are below data.images, with / between folders"
                )
        return ""

    @cached_property
    def files(self) -> ImageFiles:
        if is_url(self.spec.images):
            return ImageFiles(Path(self.spec.images))  # not downloaded yet
        return open_files(Path(self.spec.images))

    def read_labels(self) -> LabelTable:
        table, spec = self._csv, self.spec
        labels, classes, warnings = {}, {}, []
        for field in ("tasks", "held_out"):
            for column in getattr(spec, field):
                if spec.kind_of(column) == "classes":
                    cells = table.column(column, field)
                    codes, names = encode_classes(cells)
                    labels[column], classes[column] = codes, names
                    warnings += doubtful_names(column, names, np.bincount(codes[cells != ""]))
        multi_hot, multi_hot_names = {}, {}
        for name, columns in spec.multi_hot.items():
            if isinstance(columns, str):
                separator = spec.multi_hot_separator
                bits, bit_names = read_lists(table, columns, separator, f"multi_hot.{name}")
                warnings += doubtful_names(columns, bit_names, (bits == 1).sum(axis=0))
            else:
                bits, bit_names = read_bits(table, columns, f"multi_hot.{name}"), columns
            multi_hot[name], multi_hot_names[name] = bits, bit_names
        split, origin = self._read_split()
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=split,
            split_origin=origin,
            multi_hot=multi_hot,
            multi_hot_names=multi_hot_names,
            continuous={c: read_numbers(table, c, "continuous") for c in spec.continuous},
            warnings=(*warnings, *self._leaks(split)),
        )

    def _read_split(self) -> tuple[np.ndarray, str]:
        """Returns each item's split, int8 [N], and where it comes from."""
        spec, table, column = self.spec, self._csv, self.spec.split_column
        if column is not None and (column != SPLIT_COLUMN or column in table.columns):
            if spec.stratify:
                raise DataError(
                    f"data.stratify must go with a random split, got column {column!r} of "
                    f"{table.path}; set data.split_column: null, or leave data.stratify out"
                )
            return named_split(table, column), f"column {column!r}"
        groups = np.array(self.names, dtype=object)
        origin = f"drawn at random from seed {spec.seed}"
        if spec.group_column is not None:
            named = table.column(spec.group_column, "group_column")
            # Prefixes keep an item without a group apart from a group with the item's name.
            groups = np.where(named == "", "image:" + groups, "group:" + named)
            origin += f", whole groups of {spec.group_column!r}"
        if not spec.stratify:
            return drawn_split(groups, spec.split_fractions, spec.seed), origin
        columns = [table.column(name, "stratify") for name in spec.stratify]
        strata = np.array(["\0".join(cells) for cells in zip(*columns, strict=True)], dtype=object)
        split = stratified_split(common(strata, groups), groups, spec.split_fractions, spec.seed)
        return split, f"{origin}, the same shares in each class of {', '.join(spec.stratify)}"

    def _leaks(self, split: np.ndarray) -> list[str]:
        """Returns warnings of images listed twice, and of images or groups in several splits."""
        names = np.array(self.names, dtype=object)
        found = []
        repeats = len(names) - len(set(names))
        if repeats:
            found.append(f"{repeats} rows of {self._csv.path} repeat the image of another row")
        columns = {"images": names}
        if self.spec.group_column is not None:
            groups = self._csv.column(self.spec.group_column, "group_column")
            columns[f"groups of {self.spec.group_column!r}"] = groups
        for what, values in columns.items():
            if count := num_straddling(values, split):
                found.append(
                    f"{count} {what} stand in more than one split: accuracies will flatter"
                )
        return found

    def describe(self, row: int) -> str:
        return f"row {self._csv.rows[row]}, {self.names[row]}"

    def key_details(self) -> str:
        # The CSV's row numbers, because cached reasons of bad images quote them.
        return hashlib.sha256(self._csv.rows.tobytes()).hexdigest()

    def check_images(self, size: int) -> tuple[dict[int, str], str]:
        if is_url(self.spec.images):
            return {}, ""  # not downloaded yet
        return super().check_images(size)


def _stem(name: str) -> str:
    """Returns a file's name in lower case without folders, also Windows', and without ending."""
    return PureWindowsPath(name).stem.lower()
