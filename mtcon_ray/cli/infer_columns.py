"""What a folder holds, and what a CSV's columns hold: images, labels, splits and groups."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtcon_ray.base.registry import expanded
from mtcon_ray.cli.infer_labels import Texts, can_be_learnt, guess_labels
from mtcon_ray.cli.spec_template import Draft, spec_name
from mtcon_ray.data.cells import WORDS_FOR_NOTHING
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_names import IMAGE_ENDINGS
from mtcon_ray.data.sources.class_folders import FolderSource, folders_of
from mtcon_ray.data.sources.table import TableSource, columns_of_files
from mtcon_ray.data.splits import SPLITS, split_names
from mtcon_ray.data.table_file import TableFile, read_table_file
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split

# For names without spaces and signs. The names of the second line need a word such as ID.
GROUP_NAMES = re.compile(
    r"(group|patient|subject|person|identity|session)(id|no|nr|num|number|index|key|uid)?"
    r"|(product|lesion|case|animal|participant|individual|specimen|study|exam)"
    r"(id|no|nr|num|number|index|key|uid)"
)
# A random split of fewer groups may have an empty part.
LEAST_GROUPS = 10
# With a larger share of missing images the paths are probably wrong.
MAX_ABSENT = 0.1
DEFAULT_BAD = 0.01


def infer_columns(csv: Path, images: Path) -> Draft:
    """Returns the spec's data section with the probable role of each column of a CSV.

    Raises DataError if no column has images, none could be a task, or labels cannot be read.
    """
    csv, images = expanded(csv).absolute(), expanded(images).absolute()
    open_files(images)  # refuses another path before the table is read
    table = read_table_file(csv)
    image, images = _image_column(table, images)
    # pandas writes its index as a column without a name.
    texts = {c: found.counts for c, found in table.columns.items() if c not in (image, "")}
    named = {c: splits for c in texts if (splits := _named_splits(c, texts[c]))}
    split = next((c for c, splits in named.items() if _is_complete(splits, texts[c], table)), None)
    group = _group_column({c: found for c, found in texts.items() if c != split})
    guess = guess_labels({c: found for c, found in texts.items() if c not in (group, *named)})
    # As a spec with these columns reads them.
    fields = {"csv": str(csv), "images": str(images), "image_column": image}
    roles = {"split_column": split, "group_column": group}
    labels, found = guess.read(fields | roles, table)
    data = {"kind": "table", **fields, **found.spec_fields, **roles}
    num_absent = len(open_files(images).find_absent(labels.names))
    share = num_absent / len(labels)
    if DEFAULT_BAD < share <= MAX_ABSENT:
        data["max_bad_images"] = round(share + DEFAULT_BAD, 3)
    is_plain = csv.stem.lower() in ("labels", "data", "train")
    name = spec_name(csv.parent.name if is_plain else csv.stem)
    unused = [c for c in texts if c not in (*found.used, split, group)]
    return Draft(name, len(labels.rows("train")), data, unused)


def _image_column(table: TableFile, images: Path) -> tuple[str, Path]:
    """Returns the column of files, and the folder or tar in which they lie.

    Without a column of existing files it is the first column with image endings. Raises DataError
    without such a column.
    """
    for place in [images, images.parent] if images.is_dir() else [images]:
        for column in columns_of_files(table, open_files(place)):
            return column, place
    for column, found in table.columns.items():
        if found.cells[0].lower().endswith(IMAGE_ENDINGS):
            return column, images
    source = TableSource(TableSource.Spec(csv=str(table.path), images=str(images), tasks=()))
    # Names of images repeat least. A class may be the name of an image by chance.
    likely = sorted(table.columns, key=lambda c: len(table.columns[c].counts), reverse=True)
    same = (source.same_file(table.columns[c].cells.tolist(), c) for c in likely)
    rule = f"{table.path} must have a column with the images' paths below {images}"
    raise DataError(f"{rule}, got columns {', '.join(table.columns)}{next(filter(None, same), '')}")


def _group_column(columns: Mapping[str, Texts]) -> str | None:
    """Returns the column of groups, None if there is none.

    The column with the fewest groups is returned, because a patient has several studies.
    """
    names = {column: re.sub(r"[\W_]+", "", column.lower()) for column in columns}
    sizes = {c: len(columns[c]) for c, name in names.items() if GROUP_NAMES.fullmatch(name)}
    found = [column for column, size in sizes.items() if size >= LEAST_GROUPS]
    return min(found, key=sizes.__getitem__, default=None)


def _named_splits(column: str, texts: Texts) -> dict[str, Split]:
    """Returns the split of each text that names one, {} if it is not a column of splits."""
    found = split_names({v for v in texts if v.strip().lower() not in WORDS_FOR_NOTHING}, column)
    return found if "train" in found.values() and len(set(found.values())) > 1 else {}


def _is_complete(splits: Mapping[str, Split], texts: Texts, table: TableFile) -> bool:
    """Returns True if all splits are named, and each row names a split."""
    num_named = sum(texts[name] for name in splits)
    return set(splits.values()) == {*SPLITS} and num_named == len(table.rows)


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
        rule = f"the images of {images} must lie in folders named after their classes"
        raise DataError(f"{rule}, got {names[0]}; give a CSV with their labels first")
    fields["tasks"] = ["class"] if depth == 1 else [f"level_{i + 1}" for i in range(depth)]
    table = FolderSource(FolderSource.Spec.model_validate(fields)).read_labels()
    tasks = [level for level in fields["tasks"] if can_be_learnt(table, level)]
    if 0 < len(tasks) < depth:  # a single folder around all others is no class
        fields |= {"levels": fields["tasks"], "tasks": tasks}
    name = spec_name(images.name.partition(".")[0])
    return Draft(name, len(table.rows("train")), {"kind": "folder", **fields, "held_out": []})
