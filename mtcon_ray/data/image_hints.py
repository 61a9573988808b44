"""Hints for error messages: the likely cause when a table's images are not found."""

import os
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import PurePosixPath

import numpy as np

from mtcon_ray.data.csv_file import CsvFile
from mtcon_ray.data.image_files import ImageFiles, ImageFolder, leads_outside

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
# Bounds on the cost of a hint: each name tried is a system call, slow on network file systems.
NUM_TRIED = 20
MAX_FOLDERS = 1000


def evenly(count: int, most: int) -> np.ndarray:
    """Returns at most `most` indices below `count`, evenly spaced, ascending int64."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)


def likely_cause(files: ImageFiles, absent: Sequence[str], table: CsvFile, column: str) -> str:
    """Returns the end of an error message, "; " and a hint, or "" if no cause is recognised.

    `absent` are the names in the table's `column` that do not exist in `files`. Causes are tried
    in order, on a sample of the names; the first that applies is reported.
    """
    names = [absent[index] for index in evenly(len(absent), NUM_TRIED)]
    hints = chain(  # generators: a later cause is looked for only if no earlier one applies
        _outward_link(files, names),
        _backslashes(names, column),
        _other_column(files, table, column),
        _other_root(files, names, column),
        _first_parts(files, names, column),
        _spelling(files, names, column),
        _backslashes_in_files(files, names),
    )
    return next((f"; {hint}" for hint in hints), "")


def _are_there(files: ImageFiles, names: Sequence[str]) -> bool:
    """Returns True if more than half of the names exist; an empty name does not."""
    return sum(bool(name) and files.exists(name) for name in names) > len(names) / 2


def _outward_link(files: ImageFiles, names: list[str]) -> Iterator[str]:
    """Yields a hint if a leading part of a name is a symbolic link that leads outside the root."""
    for name in names:
        for part in (*map(str, reversed(PurePosixPath(name).parents)), name):
            is_link = not leads_outside(name) and os.path.islink(files.root / part)
            if is_link and files.find_outside([part]) is not None:
                yield f"{part!r} is a link that leads outside: put what it leads to inside"


def _backslashes(names: list[str], column: str) -> Iterator[str]:
    """Yields a hint if the column holds Windows paths."""
    if any(name[1:3] == ":\\" or name.startswith("\\\\") for name in names):
        yield (
            f"column {column!r} holds absolute Windows paths: write paths that start at "
            "data.images, with / between folders"
        )
    if any("\\" in name for name in names):
        yield f"column {column!r} holds Windows paths: write / instead of each backslash"


def _other_column(files: ImageFiles, table: CsvFile, column: str) -> Iterator[str]:
    """Yields a hint for each other column of the table that names existing images."""
    tried = evenly(len(table.rows), NUM_TRIED)
    for other, cells in table.columns.items():
        if other != column and _are_there(files, files.relative(cells[tried])):
            yield f"did you mean image_column: {other!r}?"


def _other_root(files: ImageFiles, names: list[str], column: str) -> Iterator[str]:
    """Yields a hint if the names exist below the parent or a subdirectory of the root."""
    if isinstance(files, ImageFolder):
        parent = ImageFolder(files.root.absolute().parent)
        if _are_there(parent, names):
            yield f"did you mean images: {parent.root}?"
    for folder in islice(files.folders(), MAX_FOLDERS):
        if _are_there(files, [f"{folder}/{name}" for name in names]):
            if isinstance(files, ImageFolder):
                yield f"did you mean images: {files.root / folder}?"
            yield (
                f"in the archive these lie below {folder!r}: write {folder + '/'!r} before each "
                f"path in column {column!r}"
            )


def _first_parts(files: ImageFiles, names: list[str], column: str) -> Iterator[str]:
    """Yields a hint if the names exist once their leading directories are removed."""
    rests = [name.partition("/")[2] for name in names]
    while any(rests):
        if _are_there(files, rests):
            first = next(n.removesuffix(r) for n, r in zip(names, rests, strict=True) if r)
            yield f"without {first!r} these are there: take it out of column {column!r}"
        rests = [rest.partition("/")[2] for rest in rests]


def _spelling(files: ImageFiles, names: list[str], column: str) -> Iterator[str]:
    """Yields a hint if a file differs in letter case only, or the name lacks its extension."""
    folders = tuple(islice(files.folders(), MAX_FOLDERS))
    for name in names[:3]:
        folder, slash, file = name.rpartition("/")
        wanted = {file.lower() + ending for ending in ("", *IMAGE_ENDINGS)}
        same = [folder, *(f for f in folders if f != folder and f.lower() == folder.lower())]
        for place in same:
            for there in sorted(files.list_files(place)):
                if there.lower() in wanted:
                    yield (
                        f"{name!r} is there as {place + slash + there!r}: column {column!r} must "
                        "agree in letter case and have the ending"
                    )


def _backslashes_in_files(files: ImageFiles, names: list[str]) -> Iterator[str]:
    """Yields a hint if the files' own names contain backslashes (packed by a Windows tool)."""
    held = {name.rpartition("\\")[2]: name for name in files.list_files("") if "\\" in name}
    for name in names:
        if there := held.get(name.rpartition("/")[2]):
            yield (
                f"{name!r} is there as {there!r}, a name with backslashes: pack or unpack the "
                "images again, with / between folders"
            )
