"""Data from a folder of Hugging Face's `datasets`: images and labels in Parquet or Arrow files."""

from functools import cached_property
from pathlib import Path

import numpy as np

from mtcon_ray.data.arrow_files import ArrowFiles
from mtcon_ray.data.sources.columns import ColumnsSource
from mtcon_ray.data.splits import SPLITS, complete_split, split_names
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import SPLIT_COLUMN, HuggingFaceSpec

MAX_SHOWN = 5


class HuggingFaceSource(ColumnsSource):
    """Labels are columns next to the column of images. The files' names may name the splits."""

    Spec = HuggingFaceSpec

    spec: HuggingFaceSpec

    @cached_property
    def files(self) -> ArrowFiles:
        return ArrowFiles(Path(self.spec.folder), self.spec.image_column)

    @cached_property
    def names(self) -> list[str]:
        return self.files.row_names()

    @cached_property
    def table(self) -> TableFile:
        spec, schema = self.spec, self.files.schema
        fields = dict.fromkeys(spec.continuous, "continuous") | dict.fromkeys(
            spec.stratify, "stratify"
        )
        for name, columns in spec.multi_hot.items():
            each = (columns,) if isinstance(columns, str) else columns
            fields |= dict.fromkeys(each, f"multi_hot.{name}")
        if spec.group_column is not None:
            fields[spec.group_column] = "group_column"
        column = spec.split_column
        if column is not None and (column != SPLIT_COLUMN or column in schema.names):
            fields[column] = "split_column"
        for field in ("tasks", "held_out"):
            for column in getattr(spec, field):
                if spec.kind_of(column) == "classes":
                    fields[column] = field
                    self._refuse_others(column, field)
        return self.files.read_columns(fields)

    def _refuse_others(self, column: str, field: str) -> None:
        """Raises DataError if a column of classes holds lists or decimals."""
        if column not in self.files.schema.names:
            return
        named = f"column {column!r} of {self.spec.folder}, which data.{field} names, must hold"
        if self.files.is_list(column):
            raise DataError(
                f"{named} a class in each row, got lists; make it a label set by data.multi_hot: "
                f"{{{column}: {column}}}"
            )
        if self.files.has_decimals(column):
            raise DataError(f"{named} classes, got decimals; name it in data.continuous too")

    def read_split(self) -> tuple[np.ndarray, str]:
        """Returns each item's split, int8 [N], and the origin of the splits in words.

        The files' splits are used if no column names splits and the files have two or three splits.
        """
        words, column = self.files.split_of_rows(), self.spec.split_column
        named = split_names(set(words), "")
        is_split = "train" in named.values() and len(set(named.values())) > 1
        if column != SPLIT_COLUMN or column in self.table.columns or not is_split:
            return super().read_split()
        given = f"the files' splits {', '.join(sorted(named))}"
        split = np.array([SPLITS.index(named[word]) for word in words], dtype=np.int8)
        split, drawn = complete_split(split, self.spec.split_fractions, self.draw)
        if not drawn:
            self.refuse_strata(given)
            return split, given
        tested = ", ".join(word for word in sorted(named) if named[word] != "train")
        return split, f"{given}: {tested} is test, val of train is {self.draw_words()}"

    def doubts(self, split: np.ndarray) -> list[str]:
        found, unread = super().doubts(split), self.files.unread
        if unread:
            shown = ", ".join(unread[:MAX_SHOWN]) + (", ..." if len(unread) > MAX_SHOWN else "")
            found.append(
                f"{len(unread)} files of {self.spec.folder} are left out, because their names do "
                f"not contain train, val or test: {shown}"
            )
        return found

    def key_details(self) -> str:
        shards = [(shard.name, shard.num_rows) for shard in self.files.shards]
        return f"{self.files.image_column} {shards}"
