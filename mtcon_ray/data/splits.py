"""Which item belongs to which split: as a column says, or drawn so that no group straddles."""

import re
from collections.abc import Iterable
from typing import Literal

import numpy as np

from mtcon_ray.data.csv_file import CsvFile
from mtcon_ray.errors import DataError, nearest

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
LEFT_OUT = -1
ALIASES: dict[str, Split] = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val", "development": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
EVALUATION = ("eval", "evaluation")
# As in CelebA's list_eval_partition.txt.
NUMBERED: dict[str, Split] = {"0": "train", "1": "val", "2": "test"}
# In any other column 0, 1 and 2 may as well be a label or the folds of a cross-validation.
NUMBERED_COLUMN = re.compile(r"(.*[\W_])?(data)?(split|partition|set|subset)([\W_].*)?")


def split_names(values: Iterable[str], column: str) -> dict[str, Split]:
    """Returns the split that each value of a column stands for; values that name none are absent.

    `eval` is the test split beside another name of val and none of test, else val.
    """
    words = {value: value.strip().lower() for value in values}
    if set(words.values()) == NUMBERED.keys() and NUMBERED_COLUMN.fullmatch(column.lower()):
        return {value: NUMBERED[word] for value, word in words.items()}
    found = {value: ALIASES[word] for value, word in words.items() if word in ALIASES}
    others = set(found.values())
    meant: Split = "test" if "val" in others and "test" not in others else "val"
    return found | {value: meant for value, word in words.items() if word in EVALUATION}


def named_split(table: CsvFile, column: str) -> np.ndarray:
    """Index of SPLITS of each item, int8 [N], from a column. Raises DataError."""
    if column not in table.columns:
        raise DataError(
            f"{table.path} must have the column {column!r} that data.split_column names "
            f"(null draws a split){nearest(column, table.columns)}"
        )
    cells = table.columns[column]
    table.refuse(
        np.array([not cell.strip() for cell in cells]),
        column,
        "name a split in each row (take rows of no split out of the file)",
    )
    names = split_names(cells, column)
    code = {value: SPLITS.index(name) for value, name in names.items()}
    split = np.array([code.get(cell, LEFT_OUT) for cell in cells], dtype=np.int8)
    table.refuse(
        split < 0,
        column,
        "hold train, val or test, or names for these (training, validation, valid, dev, testing, "
        "eval; 0, 1 and 2 in a column whose name says split, partition or set)",
    )
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
