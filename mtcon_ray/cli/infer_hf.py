"""Inference of labels from the columns of a data set of Hugging Face's `datasets`."""

from dataclasses import dataclass
from pathlib import Path

from mtcon_ray.cli.infer_columns import path_for_spec, spec_name
from mtcon_ray.cli.infer_labels import BY_HAND, MAX_CLASSES, Inferred, LabelSet, guess_labels
from mtcon_ray.data.arrow_files import ArrowFiles
from mtcon_ray.data.cells import texts_of
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.image_names import ROW_ENDINGS, is_image
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import LIST_SEPARATOR


@dataclass(frozen=True, kw_only=True)
class InferredHf(Inferred):
    """Columns of a data set folder by their probable roles."""

    folder: Path
    split_origin: str

    @property
    def place(self) -> str:
        return str(self.folder)

    def findings(self) -> dict[str, str]:
        return {"split": self.split_origin}


def is_hf_folder(folder: Path) -> bool:
    """Returns True for a folder with Parquet or Arrow files and without images as files."""
    if not folder.is_dir():
        return False
    names = list(ImageFolder(folder).names(whole=False))
    return any(n.endswith(ROW_ENDINGS) for n in names) and not any(map(is_image, names))


def infer_hf(folder: Path) -> InferredHf:
    """Returns the probable role of each column of a data set folder.

    Raises DataError if it cannot be read, or if no column could be a task.
    """
    folder = path_for_spec(folder)
    files = ArrowFiles(folder)
    left = [c for c in files.schema.names if c not in ("split", files.image_column)]
    plain = [c for c in left if files.is_plain(c)]
    cells = files.read_columns(dict.fromkeys(plain, "tasks")).columns
    guess = guess_labels(
        {c: texts_of(cells[c]) for c in plain},
        certain=[c for c in plain if files.is_class(c)],
        floats=[c for c in plain if files.has_decimals(c)],
        separator=LIST_SEPARATOR,
    )
    guess.sets.update({c: LabelSet(c, n) for c in left if (n := _set_size(files, c))})
    source = SOURCES["hf"]
    fields = {"folder": str(folder), **guess.spec_fields()}
    labels: LabelTable = source(source.Spec.model_validate(fields)).read_labels()
    found = guess.choose(labels)
    if found is None:
        raise DataError(
            f"{folder} must have a column that can be a label, or a ClassLabel, got columns "
            f"{', '.join(files.schema.names)}; {BY_HAND}"
        )
    return InferredHf(
        name=spec_name(folder.name),
        folder=folder,
        image_column=files.image_column,
        num_rows=len(labels),
        num_train=len(labels.rows("train")),
        split_origin=labels.split_origin,
        unused=tuple(c for c in left if c not in found.used),
        **vars(found),
    )


def _set_size(files: ArrowFiles, column: str) -> int:
    """Returns the number of names in a column of lists, 0 if it is not a label set."""
    if not files.is_list(column):
        return 0
    try:
        lists = files.read_columns({column: "multi_hot"}).columns[column]
    except DataError:  # sentences with the separator
        return 0
    size = len({name for cell in texts_of(lists) for name in cell.split(LIST_SEPARATOR)})
    return size if 2 <= size <= MAX_CLASSES else 0
