"""Inference of labels from a folder: the columns of a data set of `datasets`, or class folders."""

from collections import Counter
from pathlib import Path
from typing import Any

from pyarrow.types import is_floating

from mtcon_ray.base.registry import expanded
from mtcon_ray.cli.infer_labels import guess_labels
from mtcon_ray.cli.spec_template import Draft, spec_name
from mtcon_ray.data.cells import texts_of
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.image_names import ROW_ENDINGS, is_image
from mtcon_ray.data.parquet_file import is_list, is_plain
from mtcon_ray.data.row_files import RowFiles
from mtcon_ray.data.sources.class_folders import FolderSource, folders_of
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
    guess.sets.update({c: c for c in lists if _is_set(files, c)})
    fields = {"folder": str(folder), "image_column": files.image_column}
    labels, found = guess.read(HuggingFaceSource, fields, folder, files.schema.names)
    unused = [c for c in kinds if c not in found.used]
    data = {"kind": "hf", **fields, **found.spec_fields}
    return Draft(spec_name(folder.name), len(labels.rows("train")), data, unused)


def _is_set(files: RowFiles, column: str) -> bool:
    """Returns True if a column of lists is a label set."""
    table = files.read_columns([column])
    cells = texts_of(table.columns[column])
    names = {name for cell in cells for name in cell.split(LIST_SEPARATOR)}
    # Sentences may hold the separator.
    return 2 <= len(names) <= MAX_NAMES and column not in table.unclear


def infer_folders(images: Path) -> Draft:
    """Returns the spec's data section with a label per level of folders, the outermost first.

    Raises DataError if it cannot be read, or if images lie at different depths.
    """
    images = expanded(images).absolute()
    fields: dict[str, Any] = {"images": str(images), "tasks": []}
    names = FolderSource(FolderSource.Spec.model_validate(fields)).names
    depths = Counter(len(folders) for folders in folders_of(names)[1])
    depth = max(depths, key=depths.__getitem__, default=0)
    if not depth:
        raise DataError(
            f"the images of {images} must lie in folders named after their classes, got "
            f"{names[0]}; give a CSV with their labels first"
        )
    fields["tasks"] = ["class"] if depth == 1 else [f"level_{i + 1}" for i in range(depth)]
    table = FolderSource(FolderSource.Spec.model_validate(fields)).read_labels()
    name = spec_name(images.name.partition(".")[0])
    return Draft(name, len(table.rows("train")), {"kind": "folder", **fields, "held_out": []})
