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
EMBEDDING = pa.list_(pa.float32())
BLOCK = 4096  # rows in memory at once


class Neighbour(NamedTuple):
    """An image of a file of embeddings: its row, name, and cosine similarity to the query."""

    row: int
    path: str
    similarity: float


def search(file: Path, column: str, queries_QD: Tensor, k: int) -> list[list[Neighbour]]:
    """Returns the k nearest images of each query by cosine similarity, the nearest first.

    `column` is `embedding` or `heads/<name>`. Images without a finite embedding are left out.
    Raises DataError if the file is no Parquet file with this column, of the width of the queries.
    """
    queries_QD = F.normalize(queries_QD.double(), dim=1)
    best_Qk = torch.empty(len(queries_QD), 0, dtype=torch.float64)
    row_Qk = torch.empty(len(queries_QD), 0, dtype=torch.int64)
    at = 0
    try:
        for size, row_N, near_ND in _blocks(file, column, queries_QD.shape[1]):
            cosine_QN = queries_QD @ F.normalize(near_ND.double(), dim=1).T
            rows_QN = (row_N + at).expand(len(queries_QD), -1)
            # Earlier rows first: of equal similarities a stable sort keeps them.
            all_QM = torch.cat([best_Qk, cosine_QN], dim=1)
            best_Qk, order_Qk = all_QM.sort(dim=1, descending=True, stable=True)
            best_Qk, order_Qk = best_Qk[:, :k], order_Qk[:, :k]
            row_Qk = torch.cat([row_Qk, rows_QN], dim=1).gather(1, order_Qk)
            at += size
        names = pq.read_table(file, columns=[PATH])[PATH].take(pa.array(row_Qk.flatten().numpy()))
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {file}: {error}; make it with `mtcon-ray embed`") from None
    paths = iter(names.to_pylist())
    return [
        [Neighbour(r, str(next(paths)), s) for r, s in zip(rows, values, strict=True)]
        for rows, values in zip(row_Qk.tolist(), best_Qk.tolist(), strict=True)
    ]


def _blocks(file: Path, column: str, width: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields the size of each block of rows, the rows with finite embeddings, and these.

    Raises DataError if the file lacks the columns of `embed`, or embeddings have another width.
    """
    parquet = pq.ParquetFile(file)
    fields = list(parquet.schema_arrow)
    kinds = {name: [f.type for f in fields if f.name == name] for name in (PATH, column)}
    if kinds != {PATH: [pa.string()], column: [EMBEDDING]}:
        known = [f.name for f in fields if f.type == EMBEDDING]
        raise DataError(
            f"{file} must have a column path and a column {column!r} of embeddings, as "
            f"`mtcon-ray embed` writes them{nearest(column, known)}"
        )
    for block in parquet.iter_batches(BLOCK, columns=[column]):
        block.validate(full=True)
        lists = block[column]
        valid = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
        if (pc.list_value_length(lists.drop_null()).to_numpy() != width).any():
            raise DataError(
                f"column {column!r} of {file} must hold {width} numbers a row; make it with the "
                "same model by `mtcon-ray embed`"
            )
        values = lists.drop_null().flatten().fill_null(float("nan")).to_numpy()
        near_ND = torch.tensor(values).reshape(len(valid), width)
        finite_N = near_ND.isfinite().all(dim=1)
        yield len(block), torch.from_numpy(valid)[finite_N], near_ND[finite_N]
