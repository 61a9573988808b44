"""Inference of the roles of a CSV's columns: images, tasks, splits, groups, attributes."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass

# These return False for a name that is too long; those of Path raise OSError.
from os.path import exists, isfile
from pathlib import Path

import numpy as np
import pandas as pd

from mtcon_ray.data.batch import MISSING
from mtcon_ray.data.cells import WORDS_FOR_NOTHING
from mtcon_ray.data.csv_file import CsvFile, read_csv
from mtcon_ray.data.image_files import IMAGE_ENDINGS, open_files
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.data.splits import NUMBERED, SPLITS, Split, split_names
from mtcon_ray.errors import DataError
from mtcon_ray.paths import expanded

GROUP_NAMES = re.compile(r"(group|patient|subject|person|identity|product|session)(_?id)?")
MAX_CLASSES = 100
# Columns with fewer rows per class identify items; they are not labels.
LEAST_ROWS_PER_CLASS = 5
HELD_OUT_CLASSES = 20
MANY_BITS = 8
BITS = {"0", "1", "-1"}
NUM_LOOKED_AT = 1000


@dataclass(frozen=True, kw_only=True)
class Inferred(ABC):
    """Columns by their probable roles; `classes` has the number of classes of each label."""

    name: str
    image_column: str
    num_rows: int
    num_train: int
    classes: dict[str, int]
    held_out: tuple[str, ...]
    continuous: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Label columns to train on."""
        return tuple(column for column in self.classes if column not in self.held_out)

    @property
    @abstractmethod
    def place(self) -> str:
        """Folder or file that holds the images."""

    @abstractmethod
    def findings(self) -> dict[str, str]:
        """Returns the findings of one kind of data, by title."""

    def describe(self) -> list[str]:
        """Returns one line per finding, for the user to check."""
        rows = {
            "images": f"{self.image_column!r}, {self.num_rows:,} rows, in {self.place}",
            "tasks": ", ".join(f"{column} ({self.classes[column]})" for column in self.tasks),
            "held out": ", ".join(f"{column} ({self.classes[column]})" for column in self.held_out),
            **self.findings(),
            "numbers": some(self.continuous),
            "not used": some(self.unused),
        }
        return [f"{what:<11}{text}" for what, text in rows.items() if text]


@dataclass(frozen=True, kw_only=True)
class InferredColumns(Inferred):
    """Columns of a CSV by their probable roles."""

    csv: Path
    images: Path
    num_absent: int
    split_column: str | None
    incomplete_split: str | None
    """The reason that the column of splits is not used; a split is then drawn."""
    group_column: str | None
    bits: tuple[str, ...]

    @property
    def place(self) -> str:
        return str(self.images)

    def findings(self) -> dict[str, str]:
        absent = f"{self.num_absent:,} images, whose rows are left out" if self.num_absent else ""
        return {
            "split": self.split_column or "drawn: 70/10/20",
            "": self.incomplete_split or "",
            "missing": absent,
            "multi-hot": some(self.bits),
        }


def some(columns: tuple[str, ...]) -> str:
    """Returns the first of many columns, separated by commas."""
    return f"{', '.join(columns[:8])}{' ...' * (len(columns) > 8)}"


def infer_columns(csv: Path, images: Path) -> InferredColumns:
    """Returns the probable role of each column of a CSV.

    Raises DataError if no column has images, none could be a task, or labels cannot be read.
    """
    csv, images = path_for_spec(csv), path_for_spec(images)
    if not images.exists():
        raise DataError(
            f"IMAGES must be a folder, .tar or .tar.gz, got {images}, which is not there"
        )
    table = read_csv(csv)
    left = dict(table.columns)
    image = _image_column(table, images)
    first = str(left.pop(image)[0])
    if images.is_dir() and not exists(images / first) and exists(images.parent / first):
        images = images.parent
    named = {c: found for c, cells in left.items() if (found := _named_splits(c, cells))}
    split = next((c for c, found in named.items() if len(found) == len(SPLITS)), None)
    group = next((c for c in left if GROUP_NAMES.fullmatch(c.lower())), None)
    left = {c: cells for c, cells in left.items() if c not in (split, group)}
    bits = tuple(c for c, cells in left.items() if texts_of(cells) <= BITS)
    bits = bits if len(bits) >= MANY_BITS else ()
    counts = {c: len(texts_of(cells)) for c, cells in left.items() if c not in (*bits, *named)}
    classes = {c: n for c, n in counts.items() if is_label(n, left[c])}
    if classes:
        # As a spec with these columns reads them.
        fields: dict[str, object] = {"csv": str(csv), "images": str(images), "image_column": image}
        fields |= {"split_column": split, "group_column": group, "tasks": tuple(classes)}
        source = SOURCES["table"]
        labels = source(source.Spec.model_validate(fields)).read_labels()
        classes = {c: n for c, n in classes.items() if can_be_learnt(labels, c)}
    if not classes:
        raise DataError(
            f"{csv} must have a label column with 2 to {MAX_CLASSES} classes that repeat, "
            f"got columns {', '.join(table.columns)}"
        )
    continuous = tuple(c for c in counts if c not in classes and _is_measure(left[c]))
    known = {*classes, *bits, *continuous}
    return InferredColumns(
        name=_name(csv),
        csv=csv,
        images=images,
        num_rows=len(table.rows),
        num_train=len(labels.rows("train")),
        num_absent=len(open_files(images).find_absent(labels.names)),
        image_column=image,
        split_column=split,
        incomplete_split=None if split else next(map(_incomplete, named, named.values()), None),
        group_column=group,
        classes=classes,
        held_out=held_out(classes),
        bits=bits,
        continuous=continuous,
        unused=tuple(c for c in left if c not in known),
    )


def path_for_spec(path: Path) -> Path:
    """Returns the absolute path. Raises DataError if a spec, which is UTF-8, cannot hold it."""
    path = expanded(path).absolute()
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise DataError(
            f"a path in a spec must be a text in UTF-8, got {path}; rename that file or folder"
        ) from None
    return path


def _image_column(table: CsvFile, images: Path) -> str:
    for column, cells in table.columns.items():
        looked_at = [str(cell).lower() for cell in cells[:NUM_LOOKED_AT]]
        if sum(cell.endswith(IMAGE_ENDINGS) for cell in looked_at) > 0.9 * len(looked_at):
            return column
    if images.is_dir():
        for column, cells in table.columns.items():
            if cells[0] and isfile(images / str(cells[0])):
                return column
    raise DataError(
        f"{table.path} must have a column with the images' paths below {images}, got columns "
        f"{', '.join(table.columns)}"
    )


def texts_of(cells: np.ndarray) -> set[str]:
    """Returns the different texts of a column without the empty one."""
    return {str(cell) for cell in np.unique(cells.astype(str)) if cell != ""}


def _named_splits(column: str, cells: np.ndarray) -> set[Split]:
    """Returns the splits that a column names, none if it is not a column of splits."""
    values = {v for v in texts_of(cells) if v.strip().lower() not in WORDS_FOR_NOTHING}
    names = split_names(values, column)
    found = set(names.values())
    if names.keys() != values or "train" not in found or len(found) < 2:
        return set()
    # Most images are for training. Columns of labels 0, 1 and 2 need not have most zeros.
    num_train = sum(names.get(cell) == "train" for cell in cells)
    if {v.strip() for v in values} == NUMBERED.keys() and num_train <= len(cells) / 2:
        return set()
    return found


def _incomplete(column: str, named: set[Split]) -> str:
    lacking = next(split for split in SPLITS if split not in named)
    return f"column {column!r} has no {lacking}: mark some of its rows {lacking} to use it"


def can_be_learnt(table: LabelTable, column: str) -> bool:
    """Returns True if each split has labels, and the train split two classes."""
    found = [set(table.labels[column][table.rows(split)]) - {MISSING} for split in SPLITS]
    return all(found) and len(found[SPLITS.index("train")]) > 1


def is_label(num_classes: int, cells: np.ndarray) -> bool:
    """Returns True for a column whose values repeat often enough to be classes."""
    repeats = np.count_nonzero(cells != "") >= LEAST_ROWS_PER_CLASS * num_classes
    return 2 <= num_classes <= MAX_CLASSES and bool(repeats) and not _has_decimals(cells)


def _is_measure(cells: np.ndarray) -> bool:
    """Returns True for numbers with decimals; many different integers may be identifiers."""
    numbers = pd.to_numeric(cells[cells != ""], errors="coerce")
    return bool(np.isfinite(numbers).all()) and _has_decimals(cells)


def _has_decimals(cells: np.ndarray) -> bool:
    present = [str(cell) for cell in cells[:NUM_LOOKED_AT] if cell != ""]
    return bool(present) and all(re.fullmatch(r"-?\d+\.\d+([eE][-+]?\d+)?", c) for c in present)


def held_out(classes: dict[str, int]) -> tuple[str, ...]:
    """Returns the label with most classes if it has many and is not the only one."""
    most = max(classes, key=classes.__getitem__)
    return (most,) if len(classes) > 1 and classes[most] > HELD_OUT_CLASSES else ()


def _name(csv: Path) -> str:
    plain = csv.stem.lower() in ("labels", "data", "train")
    return spec_name(csv.parent.name if plain else csv.stem)


def spec_name(text: str) -> str:
    """Returns a file's name as the name of a spec."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "sweep"
