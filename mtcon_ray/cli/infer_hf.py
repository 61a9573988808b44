"""Inference of labels from the columns of a data set of Hugging Face's `datasets`."""

from pathlib import Path

from pyarrow.types import is_floating

from mtcon_ray.base.paths import expanded
from mtcon_ray.cli.infer_labels import LabelSet, guess_labels
from mtcon_ray.cli.spec_template import Draft, label_lines, spec_name, yaml_text
from mtcon_ray.data.cells import texts_of
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.image_names import ROW_ENDINGS, is_image
from mtcon_ray.data.parquet_file import is_list, is_plain
from mtcon_ray.data.row_files import RowFiles
from mtcon_ray.data.sources.hf import HuggingFaceSource
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import LIST_SEPARATOR

# A column of lists with more names has other texts than labels.
MAX_NAMES = 100


def is_hf_folder(folder: Path) -> bool:
    """Returns True for a folder with Parquet or Arrow files and without images as files."""
    if not folder.is_dir():
        return False
    names = list(ImageFolder(folder).names(whole=False))
    return any(n.endswith(ROW_ENDINGS) for n in names) and not any(map(is_image, names))


def infer_hf(folder: Path) -> Draft:
    """Returns the spec's data section with the probable role of each column of a data set.

    Raises DataError if it cannot be read, or if no column could be a task.
    """
    folder = expanded(folder).absolute()
    files = RowFiles(folder)
    kinds = {f.name: f.type for f in files.schema if f.name not in ("split", files.image_column)}
    plain = [c for c, kind in kinds.items() if is_plain(kind)]
    cells = files.read_columns(plain).columns
    guess = guess_labels(
        {c: texts_of(cells[c]) for c in plain},
        certain=[c for c in plain if hasattr(files.features[c], "names")],
        floats=[c for c in plain if is_floating(kinds[c])],
        separator=LIST_SEPARATOR,
    )
    lists = [c for c, kind in kinds.items() if is_list(kind)]
    guess.sets.update({c: LabelSet(c, n) for c in lists if (n := _set_size(files, c))})
    fields = {"folder": str(folder)}
    labels, found = guess.read(HuggingFaceSource, fields, folder, files.schema.names)
    lines = [
        "kind: hf",
        f"folder: {yaml_text(str(folder))}",
        f"image_column: {yaml_text(files.image_column)}",
        *label_lines(found, [c for c in kinds if c not in found.used]),
        f"# Splits: {labels.split_origin}.",
    ]
    return Draft(spec_name(folder.name), len(labels.rows("train")), lines)


def _set_size(files: RowFiles, column: str) -> int:
    """Returns the number of names in a column of lists, 0 if it is not a label set."""
    try:
        lists = files.read_columns([column]).columns[column]
    except DataError:  # sentences with the separator
        return 0
    size = len({name for cell in texts_of(lists) for name in cell.split(LIST_SEPARATOR)})
    return size if 2 <= size <= MAX_NAMES else 0
