"""Which item belongs to which split: as a column says, or drawn so that no group straddles."""

from typing import Literal

import numpy as np

from mtcon_ray.data.csv_file import CsvFile
from mtcon_ray.errors import DataError, nearest

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
LEFT_OUT = -1
ALIASES = {"valid": "val", "validation": "val"}


def named_split(table: CsvFile, column: str) -> np.ndarray:
    """Index of SPLITS of each item, int8 [N], from a column. Raises DataError."""
    if column not in table.columns:
        raise DataError(
            f"{table.path} must have the column {column!r} that data.split_column names "
            f"(null draws a split){nearest(column, table.columns)}"
        )
    names = [ALIASES.get(cell.lower(), cell.lower()) for cell in table.columns[column]]
    known = {name: index for index, name in enumerate(SPLITS)}
    split = np.array([known.get(name, LEFT_OUT) for name in names], dtype=np.int8)
    table.refuse(split < 0, column, f"hold {', '.join(SPLITS)}, valid or validation")
    return split


def drawn_split(groups: np.ndarray, fractions: tuple[float, ...], seed: int) -> np.ndarray:
    """Index of SPLITS of each item, int8 [N]: groups in random order, whole, where room is most.

    Larger groups go first, so that the shares come out as near `fractions` as groups allow.
    Depends on the set of groups, not on the order of the items.
    """
    names, group_of_item, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    room = np.array(fractions) * len(groups)
    split_of_group = np.zeros(len(names), dtype=np.int8)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        split_of_group[group] = room.argmax()
        room[split_of_group[group]] -= sizes[group]
    return split_of_group[group_of_item]


def num_straddling(groups: np.ndarray, split: np.ndarray) -> int:
    """How many groups have items in more than one split."""
    pairs = {(group, int(part)) for group, part in zip(groups, split, strict=True) if group != ""}
    return len(pairs) - len({group for group, _ in pairs})
