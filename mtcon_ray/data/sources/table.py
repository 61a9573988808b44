"""Data from a CSV with a row per image, and images in a folder or a tar."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from pathlib import Path, PureWindowsPath
from unicodedata import normalize

from mtcon_ray.base.registry import URL
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import ImageFiles, leads_outside
from mtcon_ray.data.sources.columns import ColumnsSource
from mtcon_ray.data.sources.files import evenly
from mtcon_ray.data.table_file import TableFile, join_attributes, read_table_file
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import TableSpec

# Bounds on the cost of a hint: each file takes a system call, slow on network file systems.
NUM_TRIED, MAX_LISTED = 20, 100_000


class TableSource(ColumnsSource):
    """Labels from a CSV. An empty cell is a missing label, never a class."""

    spec: TableSpec

    @cached_property
    def table(self) -> TableFile:
        table = read_table_file(Path(self.spec.csv), "data.csv")
        if self.spec.attributes is None:
            return table
        images = table.column(self.spec.image_column, "data.image_column")
        return join_attributes(table, images, Path(self.spec.attributes))

    @cached_property
    def names(self) -> list[str]:
        column, table = self.spec.image_column, self.table
        cells = table.column(column, "data.image_column")
        table.refuse(cells.mapped("".__eq__, bool), column, "name an image")
        names = self.files.relative(cells.cells.tolist())
        outside = self.files.find_outside(names)
        if outside is not None:
            name, cause = names[outside], "; a link leads outside: copy the files by `cp -rL`"
            if leads_outside(name):
                cause = self.same_file([name], column)
            raise DataError(
                f"column {column!r} of {table.path} must name files inside {self.spec.images}, "
                f"got {cells.cells[outside]!r} in row {table.rows[outside]}{cause}"
            )
        return names

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
        found = defaultdict(list)
        for path in islice(self.files.names(whole=False), MAX_LISTED):
            found[_stem(path)].append(path)
        return found

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

    @cached_property
    def files(self) -> ImageFiles:
        if URL.match(self.spec.images):
            return ImageFiles(Path(self.spec.images))  # not downloaded yet
        return open_files(Path(self.spec.images))

    def describe(self, row: int) -> str:
        return f"row {self.table.rows[row]}, {self.names[row]}"

    def key_details(self) -> str:
        # The CSV's row numbers, because cached reasons of bad images quote them.
        return hashlib.sha256(self.table.rows.tobytes()).hexdigest()

    def check_images(self, size: int) -> tuple[dict[int, str], str]:
        if URL.match(self.spec.images):
            return {}, ""  # not downloaded yet
        return super().check_images(size)


def columns_of_files(table: TableFile, files: ImageFiles) -> Iterator[str]:
    """Yields each column that names existing files in more than half of a sample of its rows."""
    for column, cells in table.columns.items():
        names = files.relative(cells.cells[evenly(len(cells), NUM_TRIED)])
        if sum(map(files.exists, names)) > len(names) / 2:
            yield column


def _stem(name: str) -> str:
    """Returns a file's name in lower case, without folders (also Windows'), ending and spaces."""
    return normalize("NFC", PureWindowsPath(name.strip()).stem.lower())
