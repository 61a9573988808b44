"""Inference of the roles of a CSV's columns: images, labels, splits and groups."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

# It returns False for a name beyond the length limit. Path.exists raises OSError.
from os.path import exists
from pathlib import Path

from mtcon_ray.base.paths import expanded
from mtcon_ray.cli.infer_labels import BY_HAND, Inferred, Texts, guess_labels
from mtcon_ray.data.cells import WORDS_FOR_NOTHING, texts_of
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_names import IMAGE_ENDINGS
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.files import evenly
from mtcon_ray.data.sources.table import TableSource
from mtcon_ray.data.splits import NUMBERED, SPLITS, split_names
from mtcon_ray.data.table_file import TableFile, read_table_file
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split

# For names without spaces and signs. The names of the second line need a word such as ID.
GROUP_NAMES = re.compile(
    r"(group|patient|subject|person|identity|product|session)(id|no|nr|num|number|index|key|uid)?"
    r"|(lesion|case|animal|participant|individual|specimen|study|exam)(id|no|nr|number|index|key|uid)"
)
# A random split of fewer groups may have an empty part.
LEAST_GROUPS = 10
NUM_LOOKED_AT, NUM_TRIED = 1000, 20


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

    @property
    def place(self) -> str:
        return str(self.images)

    def findings(self) -> dict[str, str]:
        absent = f"{self.num_absent:,} images, whose rows are left out" if self.num_absent else ""
        return {
            "split": self.split_column or "drawn: 70/10/20",
            "": self.incomplete_split or "",
            "groups": self.group_column or "",
            "missing": absent,
        }


def infer_columns(csv: Path, images: Path) -> InferredColumns:
    """Returns the probable role of each column of a CSV.

    Raises DataError if no column has images, none could be a task, or labels cannot be read.
    """
    csv, images = path_for_spec(csv), path_for_spec(images)
    if not images.exists():
        raise DataError(
            f"IMAGES must be a folder, .tar or .tar.gz, got {images}, which is not there"
        )
    table = read_table_file(csv)
    left = dict(table.columns)
    image = _image_column(table, images)
    first = str(left.pop(image)[0])
    if images.is_dir() and not exists(images / first) and exists(images.parent / first):
        images = images.parent
    texts = {column: texts_of(cells) for column, cells in left.items()}
    named = {c: found for c in texts if (found := _named_splits(c, texts[c]))}
    incomplete = {c: _incomplete(c, found, len(table.rows)) for c, found in named.items()}
    split = next((c for c, why in incomplete.items() if not why), None)
    group = _group_column({c: found for c, found in texts.items() if c != split})
    guess = guess_labels({c: found for c, found in texts.items() if c not in (group, *named)})
    # As a spec with these columns reads them.
    fields: dict[str, object] = {"csv": str(csv), "images": str(images), "image_column": image}
    fields |= {"split_column": split, "group_column": group}
    source = SOURCES["table"]
    labels = source(source.Spec.model_validate(fields | guess.spec_fields())).read_labels()
    roles = guess.choose(labels)
    if roles is None:
        raise DataError(
            f"{csv} must have a column that can be a label, got columns "
            f"{', '.join(table.columns)}; {BY_HAND}"
        )
    return InferredColumns(
        name=_name(csv),
        csv=csv,
        images=images,
        num_rows=len(table.rows),
        num_train=len(labels.rows("train")),
        num_absent=len(open_files(images).find_absent(labels.names)),
        image_column=image,
        split_column=split,
        incomplete_split=None if split else next(iter(incomplete.values()), None),
        group_column=group,
        unused=tuple(c for c in texts if c not in (*roles.used, split, group)),
        **vars(roles),
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


def _image_column(table: TableFile, images: Path) -> str:
    """Returns the column with files in its cells, else the first with image endings."""
    named = [
        column
        for column, cells in table.columns.items()
        if sum(cell.lower().endswith(IMAGE_ENDINGS) for cell in cells[:NUM_LOOKED_AT])
        > 0.9 * len(cells[:NUM_LOOKED_AT])
    ]
    for folder in [images, images.parent] if images.is_dir() else [images]:
        files = open_files(folder)
        for column in named or table.columns:
            cells = table.columns[column]
            tried = files.relative(cells[evenly(len(cells), NUM_TRIED)])
            if sum(map(files.exists, tried)) > len(tried) / 2:
                return column
    if named:
        return named[0]
    raise DataError(
        f"{table.path} must have a column with the images' paths below {images}, got columns "
        f"{', '.join(table.columns)}{_likely_cause(table, images)}"
    )


def _likely_cause(table: TableFile, images: Path) -> str:
    """Returns a line on the column with image names without their endings, or ""."""
    # Ages and other numbers may be names of images by chance. Names of images repeat least.
    columns = sorted(table.columns, key=lambda column: -len(texts_of(table.columns[column])))
    fields = {"csv": str(table.path), "images": str(images), "tasks": ()}
    source = TableSource(TableSource.Spec.model_validate(fields))  # lists the files once
    causes = (source.same_file(list(table.columns[column]), column) for column in columns)
    return next(filter(None, causes), "")


def _group_column(columns: Mapping[str, Texts]) -> str | None:
    """Returns the column of groups, None if there is none.

    The column with the fewest groups is returned, because a patient has several studies.
    """
    found = [
        column
        for column, texts in columns.items()
        if GROUP_NAMES.fullmatch(re.sub(r"[\W_]+", "", column.lower()))
        and len(texts) >= LEAST_GROUPS
    ]
    return min(found, key=lambda column: len(columns[column]), default=None)


def _named_splits(column: str, texts: Texts) -> Counter[Split]:
    """Returns the rows of each split named by a column, none if it is not a column of splits."""
    values = {v for v in texts if v.strip().lower() not in WORDS_FOR_NOTHING}
    names = split_names(values, column)
    found: Counter[Split] = Counter()
    for text, split in names.items():
        found[split] += texts[text]
    if names.keys() != values or "train" not in found or len(found) < 2:
        return Counter()
    # Most images are for training. Columns of labels 0, 1 and 2 need not have most zeros.
    is_numbered = {v.strip() for v in values} == NUMBERED.keys()
    return Counter() if is_numbered and found["train"] <= sum(texts.values()) / 2 else found


def _incomplete(column: str, named: Counter[Split], num_rows: int) -> str:
    """Returns the reason why a column of splits cannot be used, "" if it can."""
    for split in SPLITS:
        if split not in named:
            return f"column {column!r} has no {split}: mark some of its rows {split} to use it"
    rest = num_rows - named.total()
    return f"column {column!r} has {rest:,} rows of no split: remove them to use it" if rest else ""


def _name(csv: Path) -> str:
    plain = csv.stem.lower() in ("labels", "data", "train")
    return spec_name(csv.parent.name if plain else csv.stem)


def spec_name(text: str) -> str:
    """Returns a file's name as the name of a spec."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "sweep"
