"""Data from a CSV with a row per image, and images in a folder or a tar."""

import hashlib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path, PureWindowsPath
from unicodedata import normalize

import numpy as np

from mtcon_ray.base.registry import URL
from mtcon_ray.data import splits, table_file
from mtcon_ray.data.class_names import doubtful_names
from mtcon_ray.data.column import Column
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import ImageFiles, grouped, leads_outside
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import FilesSource, evenly
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import SEPARATORS, SPLIT_COLUMN, TableSpec

# Bounds on the cost of a hint: each file takes a system call, slow on network file systems.
NUM_TRIED, MAX_LISTED = 20, 100_000


class TableSource(FilesSource):
    """Labels in the columns of a CSV. An empty cell is a missing label, never a class."""

    spec: TableSpec

    @cached_property
    def table(self) -> table_file.TableFile:
        table = table_file.read_table_file(Path(self.spec.csv), "data.csv")
        if self.spec.attributes is None:
            return table
        images = table.column(self.spec.image_column, "data.image_column")
        return table_file.join_attributes(table, images, Path(self.spec.attributes))

    @cached_property
    def names(self) -> list[str]:
        column, table = self.spec.image_column, self.table
        cells = table.column(column, "data.image_column")
        table.refuse(cells.mapped("".__eq__, bool), column, "name an image")
        names = self.files.relative(cells.cells.tolist())
        if (outside := self.files.find_outside(names)) is not None:
            name, cause = names[outside], "; a link leads outside: copy the files by `cp -rL`"
            if leads_outside(name):
                cause = self.same_file([name], column)
            raise DataError(
                f"column {column!r} of {table.path} must name files inside {self.spec.images}, "
                f"got {cells.cells[outside]!r} in row {table.rows[outside]}{cause}"
            )
        return names

    @cached_property
    def files(self) -> ImageFiles:
        if URL.match(self.spec.images):
            return ImageFiles(Path(self.spec.images))  # not downloaded yet
        return open_files(Path(self.spec.images))

    def read_labels(self) -> LabelTable:
        table, spec = self.table, self.spec
        labels, classes, warnings = {}, {}, [*table.warnings]
        for column in (*spec.tasks, *spec.held_out):
            if spec.kind_of(column) == "classes":
                labels[column], classes[column] = table_file.encode_classes(table.column(column))
                warnings += doubtful_names(column, classes[column], labels[column], table.rows)
        multi_hot, multi_hot_names = {}, {}
        for name, columns in spec.multi_hot.items():
            if isinstance(columns, str):
                bits, bit_names = table_file.read_lists(table, columns, spec.multi_hot_separator)
                rows, codes = np.nonzero(bits == 1)
                warnings += doubtful_names(columns, bit_names, codes, table.rows[rows])
            else:
                bits, bit_names = table_file.read_bits(table, columns), columns
            multi_hot[name], multi_hot_names[name] = bits, bit_names
        split, origin = self._read_split()
        if by := spec.group_column:
            codes, names = table_file.encode_classes(table.column(by))
            warnings += doubtful_names(by, names, codes, table.rows, what="group")
        doubts = (*warnings, *self._doubts(split))
        groups = {by: np.unique(self.groups, return_inverse=True)[1]} if by else {}
        facts = tuple(self.names), labels, classes, split, multi_hot, multi_hot_names
        return LabelTable(*facts, doubts, origin, groups=groups)

    def _read_split(self) -> tuple[np.ndarray, str]:
        """Returns each item's split, int8 [N], and the origin of the splits in words."""
        spec, table, column = self.spec, self.table, self.spec.split_column
        if column is not None and (column != SPLIT_COLUMN or column in table.columns):
            if spec.stratify:
                raise DataError(
                    f"data.stratify must go with a random split, got column {column!r} of "
                    f"{table.path}; set data.split_column: null, or leave data.stratify out"
                )
            return splits.named_split(table, column), f"column {column!r}"
        words, groups = f"drawn at random from seed {spec.seed}", self.groups
        if spec.group_column is not None:
            words += f", whole groups of {spec.group_column!r}"
        if not spec.stratify:
            return splits.drawn_split(groups, spec.split_fractions, spec.seed), words
        columns = [table.column(name).cells for name in spec.stratify]
        strata = np.array(["\0".join(cells) for cells in zip(*columns, strict=True)], dtype=object)
        strata = splits.common(strata, groups)
        split = splits.stratified_split(strata, groups, spec.split_fractions, spec.seed)
        return split, f"{words}, the same shares in each class of {', '.join(spec.stratify)}"

    @property
    def groups(self) -> np.ndarray:
        names = np.array(self.names, dtype=object)
        if self.spec.group_column is None:
            return names
        named = self.table.column(self.spec.group_column).cells
        # Prefixes distinguish an item without a group from a group with the item's name.
        return np.where(named == "", "image:" + names, "group:" + named)

    def _doubts(self, split: np.ndarray) -> list[str]:
        """Returns warnings of splits, of images listed twice, and of separators of label sets."""
        names, group, found = Column.of(self.names), self.spec.group_column, []
        near = {name for name in self.table.columns if name.lower() == SPLIT_COLUMN}
        if self.spec.split_column == SPLIT_COLUMN and near and SPLIT_COLUMN not in near:
            told = f"name column {min(near)!r} in data.split_column, if it has the splits"
            found.append(f"the splits are drawn at random; {told}")
        if repeats := len(names) - len(names.texts):
            row = np.delete(np.arange(len(names)), np.unique(names.codes, return_index=True)[1])[0]
            found.append(
                f"{repeats} rows of {self.table.path} repeat the image of another row, the first: "
                f"{self.describe(row)}"
            )
        own = self.spec.multi_hot_separator
        for column in filter(self.table.columns.get, map(str, self.spec.multi_hot.values())):
            texts = self.table.columns[column].texts
            counts = {s: sum(s in text for text in texts) for s in (own, *SEPARATORS)}
            other = max(counts, key=counts.__getitem__)
            if not counts[own] and 2 * counts[other] >= len(texts):
                found.append(
                    f"no cell of column {column!r} has {own!r} between names, most have {other!r}: "
                    f"set data.multi_hot_separator to {other!r}"
                )
        columns = {"images": names}
        if group is not None:
            columns[f"groups of {group!r}"] = self.table.column(group)
        for what, values in columns.items():
            if count := splits.num_straddling(values, split):
                found.append(f"{count} {what} are in several splits: accuracies will be too high")
        return found

    def likely_cause(self, absent: Sequence[str]) -> str:
        """Returns a line with the likely cause of absent names, "" if none is recognised.

        The cause is another column of the table with names of files, or an existing file with a
        name that differs only in folders, letter case or ending.
        """
        for other in columns_of_files(self.table, self.files):
            if other != self.spec.image_column:
                return f"\ndid you mean image_column: {other!r}?"
        return self.same_file(absent, self.spec.image_column)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        """The first files below the root, by `_stem`."""
        return grouped(islice(self.files.names(whole=False), MAX_LISTED), _stem)

    def same_file(self, absent: Sequence[str], column: str) -> str:
        """Returns a line with the file probably meant by an absent name of a column, or ""."""
        for name in (absent[i] for i in evenly(len(absent), NUM_TRIED)):
            if same := self._by_stem.get(_stem(name)):
                found = get_close_matches(name, same, n=1, cutoff=0)[0]
                return (
                    f"\n{name!r} exists as {found!r}: column {column!r} must hold paths as they "
                    "are below data.images, with / between folders"
                )
        return ""

    def describe(self, row: int) -> str:
        return f"row {self.table.rows[row]}, {self.names[row]}"

    def key_details(self) -> str:
        # The CSV's row numbers, because cached reasons of bad images quote them.
        return hashlib.sha256(self.table.rows.tobytes()).hexdigest()


def columns_of_files(table: table_file.TableFile, files: ImageFiles) -> Iterator[str]:
    """Yields each column that names existing files in more than half of a sample of its rows."""
    for column, cells in table.columns.items():
        names = files.relative(cells.cells[evenly(len(cells), NUM_TRIED)])
        if sum(map(files.exists, names)) > len(names) / 2:
            yield column


def _stem(name: str) -> str:
    """Returns a file's name in lower case, without folders (also Windows'), ending and spaces."""
    return normalize("NFC", PureWindowsPath(name.strip()).stem.lower())
