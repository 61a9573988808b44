"""Exact search for the nearest images in a Parquet file of embeddings, block by block."""

import logging
import math
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.errors import DataError, nearest

PATH = "path"
NETWORK = b"mtcon.network"  # in the file's metadata
EMBEDDING = pa.list_(pa.float32())
BLOCK = 4096  # rows in memory at once

log = logging.getLogger(__name__)


class Neighbour(NamedTuple):
    """An image of a file of embeddings: its row, name, and cosine similarity to the query."""

    row: int
    path: str
    similarity: float


def search(file: Path, column: str, query_QD: Tensor, k: int, model: str) -> list[list[Neighbour]]:
    """Returns the k nearest images of each query by cosine similarity, the nearest first.

    `column` is `embedding` or `heads/<name>`. Images without a finite embedding are left out, and a
    warning counts them. `model` identifies the network of the queries. Raises DataError if the file
    is no Parquet file
    with this column, of the width of the queries, or holds embeddings of another network.
    """
    query_QD = F.normalize(query_QD.double(), dim=1)
    nearest_Qk: list[list[Neighbour]] = [[] for _ in query_QD]
    try:
        for rows, paths, near_ND in _blocks(file, column, query_QD.shape[1], model):
            cosine_QN = query_QD @ F.normalize(near_ND.double(), dim=1).T
            for found, cosine_N in zip(nearest_Qk, cosine_QN, strict=True):
                # Earlier rows first: of equal similarities a stable sort keeps them.
                for i in cosine_N.argsort(descending=True, stable=True)[:k].tolist():
                    found.append(Neighbour(rows[i], str(paths[i]), cosine_N[i].item()))
                found.sort(key=attrgetter("similarity"), reverse=True)
                del found[k:]
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {file}: {error}; make it with `mtcon-ray embed`") from None
    return nearest_Qk


def _blocks(
    file: Path, column: str, width: int, model: str
) -> Iterator[tuple[list[int], list[Any], Tensor]]:
    """Yields the rows of each block with finite embeddings, their paths, and the embeddings.

    Raises DataError as `search`.
    """
    parquet = pq.ParquetFile(file)
    # Another program's copy of the file may lack the metadata.
    if (parquet.schema_arrow.metadata or {}).get(NETWORK, model.encode()) != model.encode():
        raise DataError(f"{file} holds embeddings of another network; repeat `mtcon-ray embed`")
    fields = list(parquet.schema_arrow)
    kinds = {name: [f.type for f in fields if f.name == name] for name in (PATH, column)}
    if kinds != {PATH: [pa.string()], column: [EMBEDDING]}:
        known = [f.name for f in fields if f.type == EMBEDDING]
        raise DataError(
            f"{file} must have a column path and a column {column!r} of embeddings, as "
            f"`mtcon-ray embed` writes them{nearest(column, known)}"
        )
    at, left_out, missing = 0, 0, pa.scalar(width * [math.nan], EMBEDDING)
    for block in parquet.iter_batches(BLOCK, columns=[PATH, column]):
        block.validate(full=True)
        lists = block[column].fill_null(missing)
        if (pc.list_value_length(lists).to_numpy() != width).any():
            raise DataError(
                f"column {column!r} of {file} must hold {width} numbers a row; make it with the "
                "same model by `mtcon-ray embed`"
            )
        values = lists.flatten().fill_null(math.nan).to_numpy()
        near_ND = torch.tensor(values).reshape(len(block), width)
        finite_N = near_ND.isfinite().all(dim=1)
        rows = finite_N.nonzero()[:, 0].numpy()
        yield (rows + at).tolist(), block[PATH].take(pa.array(rows)).to_pylist(), near_ND[finite_N]
        at, left_out = at + len(block), left_out + len(block) - len(rows)
    if left_out:
        log.warning("%s of %s images have no finite embedding and are left out", left_out, at)
