"""Rows of Parquet and Arrow files with images, in the form of Hugging Face's `datasets`.

pyarrow reads them in place: the package `datasets` would first copy Parquet files into a cache of
its own. A schema's metadata names the columns of images and the classes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from mtcon_ray.data.image_files import ImageFiles, ImageFolder, UnreadableImageError
from mtcon_ray.data.parquet_file import as_text, different_values, is_list, is_plain
from mtcon_ray.data.shards import find_shards
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.errors import DataError, nearest
from mtcon_ray.spec.data.own import LIST_SEPARATOR

# Groups of rows kept in memory, because several threads decode neighbouring rows. A group has about
# 100 MB in files written by `datasets`.
MAX_GROUPS = 4


class ArrowFiles(ImageFiles):
    """The rows of a folder, named by their split and their number in it, such as "train 17".

    Rows are ordered by split. The constructor reads the files' schemas. With `image_column` None
    the files must have a single column of images. `unread` has the names of files without a split.

    Raises DataError if the folder has no such files, if a file is damaged, if the files differ in
    their columns, or if the column of images is missing, ambiguous or of another type.
    """

    def __init__(self, root: Path, image_column: str | None = None) -> None:
        super().__init__(root)
        self.shards, self.unread = find_shards(root)
        self.schema = self.shards[0].schema
        for shard in self.shards:
            if shard.schema.names != self.schema.names:
                raise DataError(
                    f"the files of {root} must have the same columns, got "
                    f"{', '.join(self.schema.names)} in {self.shards[0].name} and "
                    f"{', '.join(shard.schema.names)} in {shard.name}; name the folder of one data "
                    "set"
                )
        self._first = np.cumsum([0, *(shard.num_rows for shard in self.shards)])
        self._group: Callable[[int, int], pa.ChunkedArray] = lru_cache(MAX_GROUPS)(self._read_group)
        self.image_column = self._check_images(image_column)

    def split_of_rows(self) -> np.ndarray:
        """Returns the word of each row's split, object [N] of str."""
        words = np.array([shard.split for shard in self.shards], dtype=object)
        return np.repeat(words, [shard.num_rows for shard in self.shards])

    def row_names(self) -> list[str]:
        """Returns the name of each row."""
        counts: dict[str, int] = {}
        for shard in self.shards:
            counts[shard.split] = counts.get(shard.split, 0) + shard.num_rows
        return [f"{split} {row}" for split, count in counts.items() for row in range(count)]

    @cached_property
    def features(self) -> dict[str, Any]:
        """The features recorded by `datasets`, by column, or {} in files of other programs."""
        recorded = (self.schema.metadata or {}).get(b"huggingface", b"{}")
        try:
            return dict(json.loads(recorded)["info"]["features"])
        except (ValueError, KeyError, TypeError):  # no such record
            return {}

    def _check_images(self, column: str | None) -> str:
        """Returns the name of the column of images, by default the only such column.

        The default is the column of the feature Image, else the column of structs with bytes.
        Raises DataError if the column is missing, ambiguous or of another type.
        """

        def has_bytes(kind: pa.DataType) -> bool:
            return bool(types.is_struct(kind) and kind.get_field_index("bytes") >= 0)

        if column is None:
            found = [name for name, each in self.features.items() if _is_feature(each, "Image")]
            found = found or [field.name for field in self.schema if has_bytes(field.type)]
            if len(found) != 1:
                raise DataError(
                    f"{self.root} must have one column of images, got "
                    f"{', '.join(found) or 'none of ' + ', '.join(self.schema.names)}; name it in "
                    "data.image_column"
                )
            return found[0]
        self._check_named(column, "image_column")
        kind = self.schema.field(column).type
        if not (has_bytes(kind) or types.is_binary(kind) or types.is_large_binary(kind)):
            raise DataError(
                f"column {column!r} of {self.root}, which data.image_column names, must hold "
                f"encoded images, got {kind}"
            )
        return column

    def is_list(self, column: str) -> bool:
        """Returns True for a column of lists of text or whole numbers, such as tags."""
        return is_list(self.schema.field(column).type)

    def is_plain(self, column: str) -> bool:
        """Returns True for a column of text, numbers or truth values."""
        return is_plain(self.schema.field(column).type)

    def is_class(self, column: str) -> bool:
        """Returns True for a column of the feature ClassLabel."""
        return _is_feature(self.features.get(column), "ClassLabel")

    def has_decimals(self, column: str) -> bool:
        """Returns True for a column of floating-point numbers."""
        return bool(types.is_floating(self.schema.field(column).type))

    def read_columns(self, fields: Mapping[str, str]) -> TableFile:
        """Returns columns as text, as in a CSV, without reading an image.

        `fields` has the spec field of each column, for messages. A ClassLabel becomes the name of
        its class. Its -1 and nulls become empty cells. Values of a list are joined by |.

        Raises DataError if a column is absent, nested or damaged.
        """
        for column, field in fields.items():
            self._check_named(column, field)
            if not (self.is_plain(column) or self.is_list(column)):
                raise DataError(
                    f"column {column!r} of {self.root}, which data.{field} names, must hold text, "
                    "numbers, or lists of text or whole numbers, got "
                    f"{self.schema.field(column).type}"
                )
        parts: dict[str, list[Any]] = {column: [] for column in fields}
        for shard in self.shards:
            table = shard.read(list(fields))
            for column, cells in parts.items():
                values, places = different_values(table.column(column))
                cells += map(values.__getitem__, places)
        columns = {column: as_text(self._named(column, cells)) for column, cells in parts.items()}
        return TableFile(self.root, columns, np.array(self.row_names(), dtype=object))

    def _check_named(self, column: str, field: str) -> None:
        """Raises DataError if the column named by a spec's field is absent."""
        if column not in self.schema.names:
            raise DataError(
                f"{self.root} must have the column {column!r} that data.{field} names"
                f"{nearest(column, self.schema.names)}"
            )

    def _named(self, column: str, cells: list[Any]) -> list[Any]:
        """Returns the cells with the names of classes in place of their numbers."""
        feature = self.features.get(column)
        is_list = self.is_list(column)
        if is_list:
            # A list's feature is {"feature": ...}, before `datasets` 4 also [...].
            feature = feature[0] if isinstance(feature, list) else (feature or {}).get("feature")
        if _is_feature(feature, "ClassLabel"):
            # Without -1, which stands for an unknown class.
            known = dict(enumerate(feature["names"]))
            if is_list:
                cells = [None if c is None else [known.get(v) for v in c] for c in cells]
            else:
                cells = [known.get(cell) for cell in cells]
        for word in {str(v) for cell in cells for v in cell or ()} if is_list else ():
            if LIST_SEPARATOR in word:
                raise DataError(
                    f"names in column {column!r} of {self.root} must not hold {LIST_SEPARATOR}, "
                    f"which separates them, got {word!r}"
                )
        return cells

    def signature(self, names: Sequence[str]) -> str | None:
        return ImageFolder(self.root).signature([shard.name for shard in self.shards])

    def digest(self, names: Sequence[str]) -> str:
        return ImageFolder(self.root).digest([shard.name for shard in self.shards])

    @contextmanager
    def loaded(self, name: str) -> Iterator[bytes]:
        split, _, number = name.rpartition(" ")
        words = [shard.split for shard in self.shards]
        row = self._first[words.index(split)] + int(number)
        file = int(np.searchsorted(self._first, row, side="right")) - 1
        starts, place = self.shards[file].starts, int(row - self._first[file])
        group = int(np.searchsorted(starts, place, side="right")) - 1
        try:
            data = self._group(file, group)[place - starts[group]].as_py()
        except DataError as error:
            raise UnreadableImageError(str(error)) from None
        if isinstance(data, dict):
            data = data["bytes"]
        if data is None:
            raise UnreadableImageError("the row has no bytes of an image")
        yield bytes(data)

    def _read_group(self, file: int, group: int) -> pa.ChunkedArray:
        return self.shards[file].read_images(self.image_column, group)


def _is_feature(feature: Any, name: str) -> TypeGuard[dict[str, Any]]:
    return isinstance(feature, dict) and feature.get("_type") == name
