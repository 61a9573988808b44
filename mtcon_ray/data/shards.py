"""Parquet and Arrow files of a data set folder, and the split of each.

Either `save_to_disk` of Hugging Face's `datasets` wrote the folder, or it has files whose names or
folders name their splits, as on the hub.
"""

import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from mtcon_ray.data.image_files import ImageFolder, leads_outside
from mtcon_ray.data.image_names import ARROW, ROW_ENDINGS
from mtcon_ray.data.parquet_file import (
    MAX_UNPACKED,
    UNPACKED_PER_BYTE,
    read_columns,
    refuse_joined,
    refuse_rows,
)
from mtcon_ray.data.splits import ALIASES, EVALUATION, split_names
from mtcon_ray.errors import DataError
from mtcon_ray.regular_file import open_regular

if TYPE_CHECKING:
    import pyarrow as pa

STATE = "state.json"  # of a folder that `save_to_disk` wrote
MAX_STATE_BYTES = 10_000_000
IMAGE_BATCH = 64  # images that are unpacked before their size is known
# "train-00000-of-00002-8d1c.parquet" is a part of "train".
NUMBERED = re.compile(r"-\d{5}-of-\d{5}.*")
WORD_ENDS = re.compile(r"[-_. \d]+")
ONLY_SPLIT = "train"


@dataclass(frozen=True)
class Shard:
    """A file of rows. `name` is its path below the folder, `split` the word for its split.

    starts has the first row of each group of rows, and then the number of rows.
    """

    name: str
    split: str
    schema: "pa.Schema"
    starts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Number of rows of the file."""
        return self.starts[-1]


class ParquetShard:
    """An open Parquet file, whose groups of rows are read one by one."""

    def __init__(self, path: Path) -> None:
        import pyarrow.parquet as pq

        self._path, self._file = path, pq.ParquetFile(path)
        self.schema: pa.Schema = self._file.schema_arrow
        found = self._file.metadata
        sizes = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        self.starts = tuple(np.cumsum([0, *sizes]).tolist())

    def read(self, columns: list[str]) -> "pa.Table":
        """Returns columns of all rows."""
        return read_columns(self._path, columns)

    def read_images(self, column: str, group: int) -> "pa.ChunkedArray":
        """Returns the images of one group of rows: bytes, or a struct with the field bytes."""
        import pyarrow as pa

        parts, size = [], 0
        most = max(MAX_UNPACKED, UNPACKED_PER_BYTE * self._path.stat().st_size)
        for batch in self._file.iter_batches(IMAGE_BATCH, row_groups=[group], columns=[column]):
            parts.append(batch.column(0))
            size += batch.nbytes
            if size > most:  # the same bytes stand in many rows
                raise DataError(
                    f"{self._path} must have at most {most:,} bytes in a group of rows for its size"
                )
        return pa.chunked_array(parts)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class ArrowShard:
    """An open Arrow stream, which is one group of rows: it is mapped into memory, not read."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self._path = path
        with pa.memory_map(str(path)) as mapped:
            # A buffer of zeros is compressed to a ten thousandth of its size.
            if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(mapped))):
                raise DataError(
                    f"{path} must hold rows without compression, got compressed rows; save the "
                    "data anew, for example as Parquet"
                )
            mapped.seek(0)
            self._table = pa.ipc.open_stream(mapped).read_all()
        # pyarrow follows the offsets in the map. A wrong offset would read other memory of this
        # process, or end the process. The validation reads the offsets of images, not their bytes.
        self._table.validate(full=True)
        self.schema: pa.Schema = self._table.schema
        self.starts = (0, self._table.num_rows)

    def read(self, columns: list[str]) -> "pa.Table":
        """Returns columns of all rows."""
        table = self._table.select(columns)
        refuse_joined(self._path, table)
        return table

    def read_images(self, column: str, group: int) -> "pa.ChunkedArray":
        """Returns the images of all rows: bytes, or a struct with the field bytes."""
        return self._table.column(column)

    def close(self) -> None:
        """Does nothing: an array keeps the map for as long as it is used."""


def _is_compressed(message: "pa.ipc.Message") -> bool:
    """Returns True for rows or a dictionary with compressed buffers.

    pyarrow does not tell. `metadata` is a table of FlatBuffers, defined by Message.fbs of Arrow.
    """
    data = message.metadata.to_pybytes()

    def field(table: int, number: int) -> int:
        """Returns the place of a field, 0 if the table lacks it."""
        fields = table - struct.unpack_from("<i", data, table)[0]
        place = 4 + 2 * number
        if place >= struct.unpack_from("<H", data, fields)[0]:
            return 0
        offset: int = struct.unpack_from("<H", data, fields + place)[0]
        return table + offset if offset else 0

    def follow(place: int) -> int:
        offset: int = struct.unpack_from("<I", data, place)[0]
        return place + offset

    found = follow(field(follow(0), 2))  # Message.header
    if message.type == "dictionary":
        found = follow(field(found, 1))  # DictionaryBatch.data
    elif message.type != "record batch":
        return False
    return field(found, 3) > 0  # RecordBatch.compression


@contextmanager
def open_shard(path: Path) -> Iterator[ParquetShard | ArrowShard]:
    """Yields an open file. Raises DataError if opening or reading it shows that it is damaged."""
    import pyarrow as pa

    # Invalid dates and bytes that are not text are ValueErrors.
    try:
        open_regular(path).close()  # pyarrow would wait for a pipe
        opened = ArrowShard(path) if path.suffix.lower() == ARROW else ParquetShard(path)
        try:
            refuse_rows(path, opened.starts[-1])
            yield opened
        finally:
            opened.close()
    except (OSError, pa.ArrowException, ValueError, OverflowError, struct.error) as error:
        raise DataError(f"{path} must be a whole Parquet or Arrow file, got {error}") from None


def find_shards(root: Path) -> tuple[list[Shard], list[str]]:
    """Returns the files of rows, ordered by split and name, and the names of files without a split.

    Raises DataError if the folder has no such files, a damaged one, or several data sets.
    """
    if not root.is_dir():
        raise DataError(f"data.folder must be a folder, got {root}")
    names = sorted(ImageFolder(root).names())
    saved = [name for name in names if PurePosixPath(name).name == STATE]
    if saved:  # next to the files that it lists, caches of `datasets` may lie
        words = {
            file: PurePosixPath(name).parent.name
            for name in saved
            for file in _saved_files(root, name)
        }
    else:
        found = (n for n in names if PurePosixPath(n).suffix.lower() in ROW_ENDINGS)
        words = {name: split_word(name) for name in found}
    if not words:
        raise DataError(
            f"data.folder must hold Parquet or Arrow files, or what `save_to_disk` wrote, got "
            f"{root} with none"
        )
    known = split_names(words.values(), "")
    if not known:
        words = dict.fromkeys(words, ONLY_SPLIT)
    kept = [name for name in words if words[name] in known or not known]
    folders: dict[str, str] = {}
    for name in kept:
        folder = str(PurePosixPath(name).parent)
        if folders.setdefault(words[name], folder) != folder:
            raise DataError(
                f"data.folder must hold one data set, got {words[name]} files of {root} in "
                f"{folders[words[name]]} and in {folder}; name the folder of one"
            )
    _refuse_outside(root, kept)
    shards = []
    for name in sorted(kept, key=lambda name: (words[name], name)):
        with open_shard(root / name) as shard:
            shards.append(Shard(name, words[name], shard.schema, shard.starts))
    return shards, [name for name in words if name not in kept]


def _refuse_outside(root: Path, names: list[str]) -> None:
    """Raises DataError for a link that leads out of the folder.

    In the hub's cache, the files of datasets--USER--NAME/snapshots/COMMIT are links to blobs/.
    """
    parents = root.absolute().parents
    hub = (p for p in parents if p.name.startswith("datasets--") and (p / "blobs").is_dir())
    base = next(hub, root.absolute())
    below = [str((root.absolute() / name).relative_to(base)) for name in names]
    outside = ImageFolder(base).find_outside(below)
    if outside is not None:
        raise DataError(
            f"data.folder must hold files inside {root}, got {names[outside]}, a link that leads "
            "out of the folder; copy the file into it"
        )


def _saved_files(root: Path, state: str) -> list[str]:
    """Returns the files that a state.json lists, by their names below the root."""
    folder = PurePosixPath(state).parent
    try:
        with open_regular(root / state, MAX_STATE_BYTES) as file:
            listed = json.load(file)["_data_files"]
        names = [str(folder / str(entry["filename"])) for entry in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{root / state} must list files of `save_to_disk`, got {error!r}; save the data anew"
        ) from None
    for name in names:
        if leads_outside(name):
            raise DataError(f"{root / state} must name files inside {root}, got {name!r}")
    return names


def split_word(name: str) -> str:
    """Returns the word for a split in a file's path, by the rules of the hub, or ""."""
    path = PurePosixPath(name)
    stem = NUMBERED.sub("", path.stem)
    word = stem.rpartition("-")[2]  # "cifar10-train" in caches of `datasets`
    if stem != path.stem and word != "data":
        return word  # "train_extra" is a split of its own
    for part in (stem, *reversed(path.parts[:-1])):
        for word in WORD_ENDS.split(part.lower()):
            if word in ALIASES or word in EVALUATION:
                return word
    return ""
