"""Exact search for the nearest images in a Parquet file of embeddings, block by block."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.errors import DataError, nearest

PATH = "path"
BLOCK = 4096  # rows in memory at once


class Neighbour(NamedTuple):
    """An image of a file of embeddings: its row, name, and cosine similarity to the query."""

    row: int
    path: str
    similarity: float


def search(file: Path, column: str, queries_QD: Tensor, k: int) -> list[list[Neighbour]]:
    """Returns the k nearest images of each query by cosine similarity, the nearest first.

    `column` is `embedding` or `heads/<name>`. Images without an embedding are left out. Raises
    DataError if the file is no Parquet file with this column, of the width of the queries.
    """
    queries_QD = F.normalize(queries_QD.double(), dim=1)
    best_Qk = torch.empty(len(queries_QD), 0, dtype=torch.float64)
    row_Qk = torch.empty(len(queries_QD), 0, dtype=torch.int64)
    at = 0
    for block in _blocks(file, column):
        valid = np.flatnonzero(pc.is_valid(block[column]).to_numpy(zero_copy_only=False))
        values = block[column].flatten().to_numpy()
        if len(values) != len(valid) * queries_QD.shape[1]:
            raise DataError(
                f"column {column!r} of {file} must hold {queries_QD.shape[1]} numbers a row; make "
                "it with the same model by `mtcon-ray embed`"
            )
        near_ND = torch.tensor(values).reshape(len(valid), -1).double()
        cosine_QN = queries_QD @ F.normalize(near_ND, dim=1).T
        rows_QN = torch.from_numpy(valid + at).expand(len(queries_QD), -1)
        # Earlier rows first: of equal similarities a stable sort keeps them.
        all_QM = torch.cat([best_Qk, cosine_QN], dim=1)
        best_Qk, order_Qk = all_QM.sort(dim=1, descending=True, stable=True)
        best_Qk, order_Qk = best_Qk[:, :k], order_Qk[:, :k]
        row_Qk = torch.cat([row_Qk, rows_QN], dim=1).gather(1, order_Qk)
        at += len(block)
    names = pq.read_table(file, columns=[PATH])[PATH].take(pa.array(row_Qk.flatten().numpy()))
    paths = iter(names.to_pylist())
    return [
        [Neighbour(r, next(paths), s) for r, s in zip(rows, values, strict=True)]
        for rows, values in zip(row_Qk.tolist(), best_Qk.tolist(), strict=True)
    ]


def _blocks(file: Path, column: str) -> Iterator[pa.RecordBatch]:
    """Yields the file in blocks. Raises DataError if it lacks the column of lists of numbers."""
    try:
        parquet = pq.ParquetFile(file)
        schema = parquet.schema_arrow
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {file}: {error}; make it with `mtcon-ray embed`") from None
    lists = [field.name for field in schema if field.type == pa.list_(pa.float32())]
    if column not in lists or PATH not in schema.names:
        raise DataError(f"{file} has no column {column!r} of embeddings{nearest(column, lists)}")
    for block in parquet.iter_batches(BLOCK, columns=[column]):
        block.validate(full=True)
        yield block
