"""Data from a folder of Hugging Face's `datasets`: images and labels in Parquet or Arrow files."""

from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from mtcon_ray.data.row_files import RowFiles
from mtcon_ray.data.sources.columns import ColumnsSource
from mtcon_ray.data.splits import SPLITS, published_split, split_names
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.spec.data.own import SPLIT_COLUMN, HuggingFaceSpec

MAX_SHOWN = 5


class HuggingFaceSource(ColumnsSource):
    """Labels are columns next to the column of images. The files' names may name the splits."""

    spec: HuggingFaceSpec

    @cached_property
    def files(self) -> RowFiles:
        return RowFiles(Path(self.spec.folder), self.spec.image_column)

    @cached_property
    def names(self) -> list[str]:
        return self.files.row_names()

    @cached_property
    def table(self) -> TableFile:
        spec, there = self.spec, self.files.schema.names
        classes = [c for c in (*spec.tasks, *spec.held_out) if spec.kind_of(c) == "classes"]
        sets = ((c,) if isinstance(c, str) else c for c in spec.multi_hot.values())
        named = [*classes, *spec.continuous, *spec.stratify, *chain(*sets), spec.group_column]
        if spec.split_column != SPLIT_COLUMN or SPLIT_COLUMN in there:
            named.append(spec.split_column)
        return self.files.read_columns([*dict.fromkeys(filter(None, named))], classes)

    def read_split(self) -> tuple[np.ndarray, str]:
        """Returns each item's split, int8 [N], and the origin of the splits in words.

        The files' splits are used if no column names splits and the files have two or three splits.
        """
        spec, words = self.spec, self.files.split_of_rows()
        column, named = spec.split_column, split_names(set(words), "")
        is_split = "train" in named.values() and len(set(named.values())) > 1
        if column != SPLIT_COLUMN or column in self.table.columns or not is_split:
            return super().read_split()
        what = "the files' splits"
        if len(set(named.values())) == len(SPLITS):
            self.refuse_strata(what)
        return published_split(words.tolist(), named, what, spec.split_fractions, self.draw)

    def doubts(self, split: np.ndarray) -> list[str]:
        found, unread = super().doubts(split), self.files.unread
        if unread:
            found.append(
                f"{len(unread)} files of {self.spec.folder} are left out, because their names do "
                f"not contain train, val or test: {', '.join(unread[:MAX_SHOWN])}"
            )
        return found

    def key_details(self) -> str:
        return f"{self.files.image_column} {[*self.files.counts.items()]}"
