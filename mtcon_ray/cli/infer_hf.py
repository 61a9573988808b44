"""Inference of labels from the columns of a data set of Hugging Face's `datasets`."""

from dataclasses import dataclass
from pathlib import Path

from mtcon_ray.cli.infer_columns import (
    MAX_CLASSES,
    Inferred,
    can_be_learnt,
    held_out,
    is_label,
    path_for_spec,
    some,
    spec_name,
    texts_of,
)
from mtcon_ray.data.arrow_files import ArrowFiles
from mtcon_ray.data.csv_file import LIST_SEPARATOR, PARQUET
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.shards import ARROW
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.class_folders import is_image
from mtcon_ray.errors import DataError


@dataclass(frozen=True, kw_only=True)
class InferredHf(Inferred):
    """Columns of a data set folder by their probable roles."""

    folder: Path
    split_origin: str
    sets: tuple[str, ...]

    @property
    def place(self) -> str:
        return str(self.folder)

    def findings(self) -> dict[str, str]:
        return {"split": self.split_origin, "sets": some(self.sets)}


def is_hf_folder(folder: Path) -> bool:
    """Returns True for a folder with Parquet or Arrow files and without images as files."""
    if not folder.is_dir():
        return False
    names = list(ImageFolder(folder).names())
    return any(n.endswith((PARQUET, ARROW)) for n in names) and not any(map(is_image, names))


def infer_hf(folder: Path) -> InferredHf:
    """Returns the probable role of each column of a data set folder.

    Raises DataError if it cannot be read, or if no column could be a task.
    """
    folder = path_for_spec(folder)
    files = ArrowFiles(folder)
    left = [c for c in files.schema.names if c not in ("split", files.image_column)]
    plain = [c for c in left if files.is_plain(c)]
    cells = files.read_columns(dict.fromkeys(plain, "tasks")).columns
    counts = {c: len(texts_of(cells[c])) for c in plain if not files.has_decimals(c)}
    classes = {
        c: n for c, n in counts.items() if is_label(n, cells[c]) or (n > 1 and files.is_class(c))
    }
    if classes:
        source = SOURCES["hf"]
        fields = {"folder": str(folder), "tasks": tuple(classes)}
        labels: LabelTable = source(source.Spec.model_validate(fields)).read_labels()
        classes = {c: n for c, n in classes.items() if can_be_learnt(labels, c)}
    if not classes:
        raise DataError(
            f"{folder} must have a label column with 2 to {MAX_CLASSES} classes that repeat, or a "
            f"ClassLabel, got columns {', '.join(files.schema.names)}"
        )
    sets = tuple(c for c in left if files.is_list(c) and _is_set(files, c))
    continuous = tuple(c for c in plain if files.has_decimals(c) and len(texts_of(cells[c])) > 1)
    known = {*classes, *sets, *continuous}
    return InferredHf(
        name=spec_name(folder.name),
        folder=folder,
        image_column=files.image_column,
        num_rows=len(labels),
        num_train=len(labels.rows("train")),
        split_origin=labels.split_origin,
        classes=classes,
        held_out=held_out(classes),
        sets=sets,
        continuous=continuous,
        unused=tuple(c for c in left if c not in known),
    )


def _is_set(files: ArrowFiles, column: str) -> bool:
    try:
        lists = files.read_columns({column: "multi_hot"}).columns[column]
    except DataError:  # sentences that hold the separator
        return False
    names = {name for cell in texts_of(lists) for name in cell.split(LIST_SEPARATOR)}
    return 2 <= len(names) <= MAX_CLASSES
