"""Rows of Parquet and Arrow files with images, read by Hugging Face's package `datasets`.

Arrow files are mapped into memory. `datasets` converts the needed columns of a Parquet file to an
Arrow file in a temporary folder, which is removed at once. Its disk space is free again when the
memory map is closed. Lists of files, such as state.json, are not read.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from glob import escape
from itertools import groupby
from os.path import relpath
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.column import Column
from mtcon_ray.data.image_files import ImageFiles, ImageFolder, UnreadableImageError
from mtcon_ray.data.image_names import PARQUET, ROW_ENDINGS
from mtcon_ray.data.parquet_file import (
    as_text,
    different_values,
    is_list,
    is_plain,
    name_with_separator,
    refuse_rows,
)
from mtcon_ray.data.splits import ALIASES, EVALUATION, split_names
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.errors import DISK_ERRORS, DataError, ResourceError, nearest

MAX_OPEN = 4  # files, because several threads decode neighbouring rows
BATCH = 256  # rows converted at a time
# "train-00000-of-00002-8d1c.parquet" and "train/data-00000-of-00002.arrow" are parts of "train".
NUMBERED = re.compile(r"([^-/]+)(?:/data)?-\d{5}-of-\d{5}")
WORDS = re.compile(rf"(?<![a-z])(?:{'|'.join((*ALIASES, *EVALUATION))})(?![a-z])")


class RowFiles(ImageFiles):
    """The rows of a folder, named by their split and their number in it, such as "train 17".

    With `image_column` None the files must have a single column of images. `split_of` has the word
    for the split of each file, ordered by split. `unread` has the names of files without a split.

    Raises DataError if the package `datasets` is missing, if the folder has no such files, if a
    file is damaged, or if the column of images is missing, ambiguous or of another type.
    """

    def __init__(self, root: Path, image_column: str | None = None) -> None:
        super().__init__(root)
        self._package = _import_datasets()
        self.split_of, self.unread = find_files(root)
        looks = {name: self._look(name) for name in self.split_of}
        self.counts = {name: count for name, (_, count) in looks.items()}
        self.features: Any = looks[next(iter(looks))][0]
        self.schema = self.features.arrow_schema
        self.image_column = self._find_images(image_column)
        self._opened, self._lock = lru_cache(MAX_OPEN)(self._open), Lock()

    def _look(self, name: str) -> tuple[Any, int]:
        """Returns the features and the number of rows of a file, without its images."""
        path = self.root / name
        with _whole(path):
            found = pq.read_metadata(path) if _is_parquet(name) else self._open(name).data
            refuse_rows(path, found.num_rows)
            schema = found.schema.to_arrow_schema() if _is_parquet(name) else found.schema
            return self._package.Features.from_arrow_schema(schema), found.num_rows

    def _open(self, name: str, *columns: str) -> Any:
        """Returns a file as a `datasets.Dataset` with these columns, by default an Arrow file's."""
        path, package = self.root / name, self._package
        with _whole(path), TemporaryDirectory(ignore_cleanup_errors=True) as cache:
            if _is_parquet(name):
                return package.Dataset.from_parquet(
                    escape(str(path)), columns=[*columns], cache_dir=cache, batch_size=BATCH
                )
            _refuse_compressed(path)
            table = package.table.MemoryMappedTable.from_file(str(path))
            # A wrong offset would read other memory of this process, or end the process. The
            # validation reads the offsets of images, not their bytes.
            table.validate(full=True)
            return package.Dataset(table).select_columns([*columns] or table.column_names)

    def _find_images(self, column: str | None) -> str:
        """Returns the column of images: the named one, the only Image, or the only struct."""
        images = [n for n, f in self.features.items() if getattr(f, "_type", "") == "Image"]
        structs = [f for f in self.schema if types.is_struct(f.type)]
        known = images or [f.name for f in structs if "bytes" in f.type.names]
        found = known if column is None else [n for n in self.schema.names if n == column]
        if len(found) != 1:
            raise DataError(
                f"{self.root} must have {'one column' if column is None else repr(column)} of "
                f"images, got {', '.join(known) or 'none of ' + ', '.join(self.features)}; name it "
                "in data.image_column"
            )
        return str(found[0])

    def split_of_rows(self) -> np.ndarray:
        """Returns the word of each row's split, object [N] of str."""
        return np.repeat(np.array([*self.split_of.values()], object), [*self.counts.values()])

    def row_names(self) -> list[str]:
        """Returns the name of each row."""
        parts = groupby(self.split_of_rows())
        return [f"{split} {row}" for split, rows in parts for row, _ in enumerate(rows)]

    def read_columns(self, columns: Sequence[str], classes: Collection[str] = ()) -> TableFile:
        """Returns columns as text, as in a CSV, without reading an image.

        A ClassLabel becomes the name of its class. Its -1 and nulls become empty cells. Values of a
        list are joined by |. Raises DataError if a column is damaged, is nested, or has
        lists or decimals although it is in `classes`.
        """
        for column in columns:
            if column not in self.schema.names:
                near = nearest(column, self.schema.names)
                raise DataError(f"{self.root} must have the column {column!r} of the spec{near}")
            if reason := _why_unfit(self.schema.field(column).type, column in classes):
                raise DataError(f"column {column!r} of {self.root} must hold {reason}")
        parts: dict[str, list[Any]] = {column: [] for column in columns}
        unclear: dict[str, str] = {}
        for name in filter(self.counts.get, self.counts if columns else ()):
            rows = self._open(name, *columns)
            for column, cells in parts.items():
                values, places = different_values(rows.data.column(column))
                values = _with_names(rows.features[column], values)
                if bad := name_with_separator(values):
                    unclear[column] = bad
                cells += map(values.__getitem__, places)
        texts = {column: Column.of(as_text(cells)) for column, cells in parts.items()}
        rows = np.array(self.row_names(), dtype=object)
        return TableFile(self.root, texts, rows, unclear=unclear)

    def signature(self, names: Sequence[str]) -> str | None:
        return ImageFolder(self.root).signature([*self.split_of])

    def digest(self, names: Sequence[str]) -> str:
        return ImageFolder(self.root).digest([*self.split_of])

    def read(self, name: str) -> bytes:
        split, _, number = name.rpartition(" ")
        file, place = "", int(number)
        for file in (f for f, word in self.split_of.items() if word == split):
            if place < self.counts[file]:
                break
            place -= self.counts[file]
        try:
            with self._lock:  # otherwise several threads would convert the file
                rows = self._opened(file, self.image_column)
        except DataError as error:
            raise UnreadableImageError(str(error)) from None
        # Not `rows[place]`, which would open the path in a row.
        data = rows.data.column(self.image_column)[place].as_py()
        data = data["bytes"] if isinstance(data, dict) else data
        if not isinstance(data, bytes):
            raise UnreadableImageError("the row has no bytes of an image")
        return data


def _import_datasets() -> Any:
    try:
        import datasets
    except ImportError:
        raise DataError(
            "data.kind hf needs the package datasets; install it with `pip install 'mtcon-ray[hf]'`"
        ) from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    return datasets


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turns errors of a file's content into a DataError. Refuses anything but a regular file."""
    try:
        open_regular(path).close()  # pyarrow would wait for a pipe
        yield
    except DataError:
        raise
    except Exception as error:  # of any class, for example for features of a foreign file
        cause = error.__cause__ or error
        if getattr(cause, "errno", None) in DISK_ERRORS:
            raise ResourceError(
                f"cannot convert {path}: {cause}; free disk space, or set TMPDIR to another place"
            ) from error
        raise DataError(f"{path} is not a whole Parquet or Arrow file: {cause}") from None


def _refuse_compressed(path: Path) -> None:
    """Raises DataError for an Arrow file with compressed rows, which may fill the memory."""
    left = path.stat().st_size
    with pa.memory_map(str(path)) as file:
        for batch in pa.ipc.open_stream(file):
            left -= batch.nbytes
            if left < 0:
                raise DataError(f"{path} has compressed rows, which are not read; save it again")


def _is_parquet(name: str) -> bool:
    return name.lower().endswith(PARQUET)


def _why_unfit(kind: Any, is_class: bool) -> str:
    """Returns the reason why a column of this type cannot be such a label, "" if it can."""
    if is_list(kind) and is_class:
        return "a class in each row, got lists; make it a label set by data.multi_hot"
    if types.is_floating(kind) and is_class:
        return "classes, got decimals; name it in data.continuous too"
    if is_plain(kind) or is_list(kind):
        return ""
    return f"text, numbers, or lists of text or whole numbers, got {kind}"


def _with_names(feature: Any, values: list[Any]) -> list[Any]:
    """Returns a column's values with the names of classes in place of their numbers."""
    names = getattr(getattr(feature, "feature", feature), "names", None)
    if names is None:
        return values
    known = dict(enumerate(names))  # without -1, which stands for an unknown class
    return [[*map(known.get, v)] if isinstance(v, list) else known.get(v) for v in values]


def find_files(root: Path) -> tuple[dict[str, str], list[str]]:
    """Returns the split of each file of rows, ordered by split, and the files without a split.

    Raises DataError if the folder has no such files, several data sets, or a link leading out.
    """
    if not root.is_dir():
        raise DataError(f"data.folder must be a folder, got {root}")
    names = [n for n in sorted(ImageFolder(root).names()) if n.lower().endswith(ROW_ENDINGS)]
    # `datasets` keeps results of `map` in files next to the data.
    words = {n: split_word(n) for n in names if not PurePosixPath(n).name.startswith("cache-")}
    if not words:
        raise DataError(f"data.folder {root} has no Parquet or Arrow files")
    known = split_names(words.values(), "")
    kept = {n: words[n] for n in words if words[n] in known} or dict.fromkeys(words, "train")
    places = {(word, str(PurePosixPath(name).parent)) for name, word in kept.items()}
    if len(places) > len({*kept.values()}):
        found = ", ".join(f"{word} files in {folder}" for word, folder in sorted(places))
        raise DataError(
            f"data.folder {root} has more than one data set: {found}; name the folder of one"
        )
    # In the hub's cache, the files of datasets--USER--NAME/snapshots/COMMIT are links to blobs/.
    base = next((p for p in root.absolute().parents if p.name.startswith("datasets--")), root)
    outside = ImageFolder(base).find_outside([relpath(root / name, base) for name in kept])
    if outside is not None:
        raise DataError(
            f"the link {[*kept][outside]} leads out of data.folder {root}; copy the file into the "
            "folder"
        )
    ordered = dict(sorted(kept.items(), key=lambda item: (item[1], item[0])))
    return ordered, [name for name in words if name not in kept]


def split_word(name: str) -> str:
    """Returns the word for a split in a file's path, by the rules of the hub, or ""."""
    numbered = NUMBERED.search(name)
    if numbered and numbered[1] != "data":
        return numbered[1]  # "train_extra" is a split of its own
    return next(reversed(WORDS.findall(name.lower())), "")
