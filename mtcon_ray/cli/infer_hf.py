"""Inference of labels from the columns of a data set of Hugging Face's `datasets`."""

from pathlib import Path

from mtcon_ray.cli.infer_labels import MAX_CLASSES, LabelSet, guess_labels
from mtcon_ray.cli.spec_template import Draft, label_lines, path_for_spec, spec_name, yaml_text
from mtcon_ray.data.arrow_files import ArrowFiles
from mtcon_ray.data.cells import texts_of
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.image_names import ROW_ENDINGS, is_image
from mtcon_ray.data.sources.hf import HuggingFaceSource
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import LIST_SEPARATOR


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
    fields = {"folder": str(folder), **guess.spec_fields()}
    labels = HuggingFaceSource(HuggingFaceSource.Spec.model_validate(fields)).read_labels()
    found = guess.choose(labels, folder, files.schema.names)
    lines = [
        "kind: hf",
        f"folder: {yaml_text(str(folder))}",
        f"image_column: {yaml_text(files.image_column)}",
        *label_lines(found, [c for c in left if c not in found.used]),
        f"# Splits: {labels.split_origin}.",
    ]
    return Draft(spec_name(folder.name), len(labels.rows("train")), lines)


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
