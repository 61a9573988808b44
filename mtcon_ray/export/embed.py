"""Embeddings of images in a Parquet file: features of the encoder and the heads' projections.

Finished blocks of rows lie in <FILE>.parts until the file is complete, so a killed run continues.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pydantic import ValidationError

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.base.root_files import make_folder, remove_folder
from mtcon_ray.data.dataset import open_source
from mtcon_ray.data.disk import build_folder, whole_file
from mtcon_ray.data.image_names import ROW_ENDINGS
from mtcon_ray.data.sources import DataSource
from mtcon_ray.data.sources.files import FilesSource
from mtcon_ray.errors import DataError, SpecError
from mtcon_ray.export.encoder import BATCH_SIZE, TrainedEncoder
from mtcon_ray.export.search import NETWORK
from mtcon_ray.spec.data.base import DataSpec, FilesSpec
from mtcon_ray.spec.data.own import FolderSpec, TableSpec
from mtcon_ray.spec.messages import explain
from mtcon_ray.spec.run_spec import load_spec

ROWS_FILE = "rows.parquet"
REASON = "reason"  # a column of the parts alone
ROWS_PER_TASK = 16


class Images(NamedTuple):
    """Images in the order of their rows, with a name each."""

    source: DataSource
    names: Sequence[str]

    def decoded(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Returns the images of these rows as `DataSource.decode` does, by several threads."""
        starts = range(0, max(1, len(rows)), ROWS_PER_TASK)  # a task also without rows
        tasks = [rows[at : at + ROWS_PER_TASK] for at in starts]
        with ThreadPoolExecutor(min(self.source.num_threads, usable_cpus())) as pool:
            parts = list(pool.map(lambda task: self.source.decode(task, size), tasks))
        reasons = {row: reason for _, bad in parts for row, reason in bad.items()}
        return np.concatenate([images for images, _ in parts]), reasons

    def key(self, model: str) -> str:
        """Returns a hex digest, which differs for other images and for another `model`."""
        seen = self.source.signature() or self.source.content_key()
        return hashlib.sha256("\0".join([model, seen, *self.names]).encode()).hexdigest()


def data_at(path: Path, images: Path | None = None, column: str | None = None) -> DataSpec:
    """Returns the data at a path: a folder or archive of images, a table of names, or a spec.

    A table is a CSV or TSV file. `column` holds the names of its images below
    `images`, by default the folder of the table. A spec is a YAML file with a section `data` of any
    kind. Raises SpecError for an invalid spec or path.
    """
    try:
        if path.suffix.lower() in (".csv", ".tsv", *ROW_ENDINGS):
            named = {"image_column": column} if column else {}
            folder = str(images or path.parent)
            return TableSpec(csv=str(path), images=folder, tasks=(), split_column=None, **named)
        if column or images:
            raise SpecError(f"--column and --images are options for a table, got {path}")
        if path.suffix in (".yaml", ".yml"):
            return load_spec(path).data
        return FolderSpec(images=str(path), tasks=())
    except ValidationError as error:
        raise SpecError(explain(error, DataSpec)) from None


def open_images(
    spec: DataSpec, encoder: TrainedEncoder, store: Path, callbacks: Callbacks
) -> Images:
    """Returns the images of a data section, made square as in the encoder's training.

    Files of a folder that are left out are noted. Raises DataError if they cannot be listed.
    """
    if isinstance(spec, FilesSpec):
        spec = spec.model_copy(update={"resize": encoder.resize})
    source = open_source(spec, store)
    if isinstance(source, FilesSource):
        for warning in source.read_labels().warnings if isinstance(spec, FolderSpec) else ():
            callbacks.on_note(f"warning: {warning}")
        return Images(source, source.names)
    return Images(source, [str(row) for row in range(len(source.read_labels()))])


def embedded_images(
    encoder: TrainedEncoder, images: Images, store: Path, model: str, callbacks: Callbacks
) -> Path:
    """Returns a file of `embed_images` below `store`, which is written if it does not exist."""
    folder = store / "embeddings" / images.key(model)

    def fill(building: Path) -> None:
        embed_images(encoder, images, building / ROWS_FILE, model, callbacks)

    build_folder(folder, 0, fill, resumable=True)
    return folder / ROWS_FILE


def embed_images(
    encoder: TrainedEncoder, images: Images, to: Path, model: str, callbacks: Callbacks
) -> dict[int, str]:
    """Writes the file `to` of all images, and returns {row: reason} of unreadable images.

    Its columns are `path`, `embedding` and `heads/<name>` of each head: lists of float32. An
    unreadable image has a row of nulls. `model` identifies the network, also in the file. The
    parts of an earlier run count if model and images are the same. Raises DataError if no image
    can be read, StorageError if the disk is full. The file `to` is then as before.
    """
    parts, total = to.with_name(f"{to.name}.parts"), len(images.names)
    own = parts / images.key(model)
    if not own.is_dir():
        remove_folder(parts, ignore_errors=True)
        make_folder(own)
    files = {at: own / f"{at:010}.parquet" for at in range(0, total, BATCH_SIZE)}
    for at, file in files.items():
        if not file.is_file():
            rows = range(at, min(at + BATCH_SIZE, total))
            with whole_file(file) as stream:
                pq.write_table(_rows(encoder, images, rows), stream)
        callbacks.on_embed(min(at + BATCH_SIZE, total), total)
    unreadable = dict[int, str]()
    for at, file in files.items():
        found = enumerate(pq.read_table(file, columns=[REASON])[REASON].to_pylist(), at)
        unreadable |= {row: reason for row, reason in found if reason is not None}
    if len(unreadable) == total:
        remove_folder(parts)
        raise DataError(
            f"no image was read: {unreadable[0]}; for a table name their folder by --images"
        )
    schema = pq.read_schema(files[0])
    schema = schema.remove(schema.get_field_index(REASON)).with_metadata({NETWORK: model})
    with whole_file(to) as stream, pq.ParquetWriter(stream, schema) as writer:
        for file in files.values():
            writer.write_table(pq.read_table(file).drop_columns(REASON))
    remove_folder(parts)
    return unreadable


def _rows(encoder: TrainedEncoder, images: Images, rows: range) -> pa.Table:
    """Returns the rows of the file, with a further column `reason` of unreadable images."""
    pixels, bad = images.decoded(rows, encoder.size)
    columns = {"path": pa.array([images.names[row] for row in rows])}
    missing = pa.array([row in bad for row in rows])
    for name, values in encoder.project(torch.from_numpy(pixels)).items():
        # Not of fixed size: pyarrow cannot read back such lists with nulls.
        offsets = pa.array(range(0, values.numel() + 1, values.shape[1]), pa.int32())
        columns[name] = pa.ListArray.from_arrays(offsets, values.flatten().numpy(), mask=missing)
    columns[REASON] = pa.array([bad.get(row) for row in rows], pa.string())
    return pa.table(columns)
