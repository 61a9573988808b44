"""Parquet and Arrow files of a data set folder, and the split of each file.

Either `save_to_disk` of Hugging Face's `datasets` wrote the folder, or the names or folders of its
files name the splits, as on the hub.
"""

import json
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.image_files import ImageFolder, leads_outside
from mtcon_ray.data.image_names import ARROW, ROW_ENDINGS
from mtcon_ray.data.parquet_file import read_columns, refuse_joined, refuse_rows, refuse_unpacked
from mtcon_ray.data.splits import ALIASES, EVALUATION, split_names
from mtcon_ray.errors import DataError

STATE = "state.json"  # of a folder written by `save_to_disk`
MAX_STATE_BYTES = 10_000_000
IMAGE_BATCH = 64  # images unpacked before their size is known
# "train-00000-of-00002-8d1c.parquet" is a part of "train".
NUMBERED = re.compile(r"-\d{5}-of-\d{5}.*")
WORD_ENDS = re.compile(r"[-_. \d]+")
ONLY_SPLIT = "train"


@dataclass(frozen=True)
class Shard:
    """A file of rows. `name` is its path below the folder, `split` the word for its split.

    starts has the first row of each group of rows, and then the number of rows. An Arrow stream is
    a single group.
    """

    path: Path
    name: str
    split: str
    schema: pa.Schema
    starts: tuple[int, ...]

    @property
    def num_rows(self) -> int:
        """Number of rows of the file."""
        return self.starts[-1]

    def read(self, columns: list[str]) -> pa.Table:
        """Returns columns of all rows. Raises DataError if they are damaged."""
        with _whole(self.path):
            if not _is_arrow(self.path):
                return read_columns(self.path, columns)
            table = _mapped(self.path).select(columns)
            refuse_joined(self.path, table)
            return table

    def read_images(self, column: str, group: int) -> pa.ChunkedArray:
        """Returns the images of a group of rows: bytes, or a struct with the field bytes.

        Raises DataError if they are damaged.
        """
        with _whole(self.path):
            if _is_arrow(self.path):
                return _mapped(self.path).column(column)
            parts, size = [], 0
            with pq.ParquetFile(self.path) as file:
                for batch in file.iter_batches(IMAGE_BATCH, row_groups=[group], columns=[column]):
                    parts.append(batch.column(0))
                    size += batch.nbytes
                    # The same bytes may stand in many rows.
                    refuse_unpacked(self.path, size, "bytes in a group of rows")
            return pa.chunked_array(parts)


def _open(root: Path, name: str, split: str) -> Shard:
    """Returns a file with its schema. Raises DataError if reading the schema shows damage."""
    path = root / name
    with _whole(path):
        if _is_arrow(path):
            table = _mapped(path)
            schema, sizes = table.schema, [table.num_rows]
        else:
            with pq.ParquetFile(path) as file:
                found, schema = file.metadata, file.schema_arrow
            sizes = [found.row_group(group).num_rows for group in range(found.num_row_groups)]
        refuse_rows(path, sum(sizes))
    return Shard(path, name, split, schema, tuple(np.cumsum([0, *sizes]).tolist()))


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turns errors of pyarrow into a DataError. Refuses anything but a regular file."""
    # Invalid dates and undecodable texts raise ValueError.
    try:
        open_regular(path).close()  # pyarrow would wait for a pipe
        yield
    except (OSError, pa.ArrowException, ValueError, OverflowError, struct.error) as error:
        raise DataError(f"{path} is not a whole Parquet or Arrow file: {error}") from None


def _is_arrow(path: Path) -> bool:
    return path.suffix.lower() == ARROW


def _mapped(path: Path) -> pa.Table:
    """Returns the rows of an Arrow stream, which are mapped into memory, not read."""
    with pa.memory_map(str(path)) as mapped:
        # A buffer of zeros is compressed to a ten thousandth of its size.
        if any(map(_is_compressed, pa.ipc.MessageReader.open_stream(mapped))):
            raise DataError(
                f"{path} has compressed rows, which are not read; save the data again, for example "
                "as Parquet"
            )
        mapped.seek(0)
        table = pa.ipc.open_stream(mapped).read_all()
    # pyarrow follows the offsets in the map. A wrong offset would read other memory of this
    # process, or end the process. The validation reads the offsets of images, not their bytes.
    table.validate(full=True)
    return table


def _is_compressed(message: "pa.ipc.Message") -> bool:
    """Returns True for rows or a dictionary with compressed buffers.

    pyarrow has no function for it. `metadata` is a table of FlatBuffers, see Message.fbs of Arrow.
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


def find_shards(root: Path) -> tuple[list[Shard], list[str]]:
    """Returns the files of rows, ordered by split and name, and the names of files without a split.

    Raises DataError if the folder has no such files, a damaged file, or several data sets.
    """
    if not root.is_dir():
        raise DataError(f"data.folder must be a folder, got {root}")
    names = sorted(ImageFolder(root).names())
    saved = [name for name in names if PurePosixPath(name).name == STATE]
    if saved:  # unlisted files may be caches of `datasets`
        listed = {name: _saved_files(root, name) for name in saved}
        words = {
            file: PurePosixPath(n).parent.name for n, files in listed.items() for file in files
        }
    else:
        found = (n for n in names if PurePosixPath(n).suffix.lower() in ROW_ENDINGS)
        words = {name: split_word(name) for name in found}
    if not words:
        raise DataError(
            f"data.folder {root} has no Parquet or Arrow files, and nothing written by "
            "`save_to_disk`"
        )
    known = split_names(words.values(), "")
    kept = {n: word for n, word in words.items() if word in known}
    kept = kept or dict.fromkeys(words, ONLY_SPLIT)
    folders: dict[str, str] = {}
    for name, word in kept.items():
        folder = str(PurePosixPath(name).parent)
        if folders.setdefault(word, folder) != folder:
            raise DataError(
                f"data.folder {root} has more than one data set: {word} files are in "
                f"{folders[word]} and in {folder}; name the folder of one data set"
            )
    _refuse_outside(root, [*kept])
    ordered = sorted(kept, key=lambda name: (kept[name], name))
    return [_open(root, name, kept[name]) for name in ordered], [n for n in words if n not in kept]


def _refuse_outside(root: Path, names: list[str]) -> None:
    """Raises DataError for a link leading out of the folder.

    In the hub's cache, the files of datasets--USER--NAME/snapshots/COMMIT are links to blobs/.
    """
    parents = root.absolute().parents
    hub = (p for p in parents if p.name.startswith("datasets--") and (p / "blobs").is_dir())
    base = next(hub, root.absolute())
    below = [str((root.absolute() / name).relative_to(base)) for name in names]
    outside = ImageFolder(base).find_outside(below)
    if outside is not None:
        raise DataError(
            f"the link {names[outside]} leads out of data.folder {root}; copy the file into the "
            "folder"
        )


def _saved_files(root: Path, state: str) -> list[str]:
    """Returns the files listed in a state.json, by their names below the root."""
    folder = PurePosixPath(state).parent
    try:
        with open_regular(root / state, MAX_STATE_BYTES) as file:
            listed = json.load(file)["_data_files"]
        names = [str(folder / str(entry["filename"])) for entry in listed]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{root / state} does not list the files of `save_to_disk`: {error!r}; save the data "
            "again"
        ) from None
    for name in names:
        if leads_outside(name):
            raise DataError(f"{root / state} names {name!r}, which leads out of {root}")
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
