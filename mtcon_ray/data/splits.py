"""Assignment of items to splits: by a column, or at random with each group in a single split."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from mtcon_ray.data.column import Column
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.spec.data.base import Split

SPLITS: tuple[Split, ...] = ("train", "val", "test")
LEFT_OUT = -1
ALIASES: dict[str, Split] = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val", "development": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
EVALUATION = ("eval", "evaluation")
# Words that may follow the name of a split, as in training_set.
AFTER_SPLIT = re.compile(r"[\W_]?(set|split|data|images)$")
# The codes of CelebA's list_eval_partition.txt.
NUMBERED: dict[str, Split] = {"0": "train", "1": "val", "2": "test"}
# Column names under which 0, 1, 2 mean splits. Elsewhere they may be labels or folds.
NUMBERED_COLUMN = re.compile(r"(.*[\W_])?(data)?(split|partition|set|subset)([\W_].*)?")


def split_names(values: Iterable[str], column: str) -> dict[str, Split]:
    """Returns the mapping from a column's values to splits. Other values are left out.

    `eval` means test if another value means val and no value means test. Otherwise it means val.
    """
    words = {value: AFTER_SPLIT.sub("", value.strip().lower()) for value in values}
    if set(words.values()) == NUMBERED.keys() and NUMBERED_COLUMN.fullmatch(column.lower()):
        return {value: NUMBERED[word] for value, word in words.items()}
    found = {value: ALIASES[word] for value, word in words.items() if word in ALIASES}
    others = set(found.values())
    meant: Split = "test" if "val" in others and "test" not in others else "val"
    return found | {value: meant for value, word in words.items() if word in EVALUATION}


def named_split(table: TableFile, column: str) -> np.ndarray:
    """Returns each item's split from a column: int8 [N], an index into SPLITS.

    Raises DataError if the column is absent, has an empty cell, or a value without a split's name.
    """
    cells = table.column(column, "data.split_column; null draws a split")
    names = split_names(filter(str.strip, cells.texts), column)
    code = {value: SPLITS.index(name) for value, name in names.items()}
    split = cells.mapped(lambda text: code.get(text, LEFT_OUT), np.int8)
    rule = (
        "name a split in each row: train, val, test, or names for these (training, validation, "
        "valid, dev, testing, eval; 0, 1 and 2 in a column whose name says split, partition or "
        "set; take rows of no split out of the file)"
    )
    table.refuse(split < 0, column, rule)
    return split


def drawn_split(
    groups: np.ndarray,
    fractions: Sequence[float],
    seed: int | Sequence[int],
    missing: list[float] | None = None,
) -> np.ndarray:
    """Returns a random split with each group in a single split: int8 [N], an index into SPLITS.

    Groups are assigned in random order. A group goes to the split with the most items missing from
    its share in `fractions`. With the largest first, all large groups would be in train. The result
    depends on the groups and their sizes, not on the order of the items. `missing` is the number of
    items missing from each split before the call, and is changed to those after the call.
    """
    column = Column.of(groups)
    sizes = np.bincount(column.codes)
    order = np.random.default_rng(seed).permutation(len(sizes))
    room = [0.0] * len(fractions) if missing is None else missing
    room[:] = [left + share * len(groups) for left, share in zip(room, fractions, strict=True)]
    chosen = []
    for size in sizes[order].tolist():  # lists: a million groups take half a second
        chosen.append(room.index(max(room)))
        room[chosen[-1]] -= size
    split_of_group = np.array(chosen, np.int8)[order.argsort()]
    return np.asarray(split_of_group[column.codes])


def stratified_split(
    strata: np.ndarray, groups: np.ndarray, fractions: Sequence[float], seed: int
) -> np.ndarray:
    """Returns a random split as `drawn_split` does, with the same `fractions` in each stratum."""
    split = np.zeros(len(groups), dtype=np.int8)
    names, stratum_of_item = np.unique(strata, return_inverse=True)
    missing = [0.0] * len(fractions)
    for stratum in np.random.default_rng(seed).permutation(len(names)).tolist():
        rows = np.flatnonzero(stratum_of_item == stratum)
        split[rows] = drawn_split(groups[rows], fractions, (seed, stratum), missing)
        # Rounding is made up for by later strata, what a large group takes too much is not.
        missing = [min(max(number, -1.0), 1.0) for number in missing]
    return split


def common(strata: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns the most frequent stratum of each item's group. Ties go to the first by name.

    >>> groups, strata = np.array([*"xyxzyzzy"], object), np.array([*"baabcabc"], object)
    >>> "".join(common(strata, groups))
    'acabcbbc'
    """
    counts = Counter(zip(groups, strata, strict=True))
    ordered = sorted(counts, key=lambda pair: (-counts[pair], pair))
    best = dict(reversed(ordered))  # of equal keys the last one stays
    return np.array([best[group] for group in groups], dtype=object)


def num_straddling(groups: Column, split: np.ndarray) -> int:
    """Returns the number of groups with items in several splits. "" is not a group."""
    pairs = np.unique(groups.codes * np.int64(len(SPLITS) + 1) + split + 1) // (len(SPLITS) + 1)
    found, counts = np.unique(pairs, return_counts=True)
    return int(((counts > 1) & (groups.texts[found] != "")).sum())
