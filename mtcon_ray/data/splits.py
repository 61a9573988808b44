"""Assignment of items to splits: by a column, or at random with each group in a single split."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mtcon_ray.data.table_file import TableFile
from mtcon_ray.spec.data.base import DrawnSplitSpec, Split

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
    cells = table.column(column, "split_column", hint=" (null draws a split)")
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


def drawn_split(
    groups: np.ndarray, fractions: tuple[float, ...], seed: int | Sequence[int]
) -> np.ndarray:
    """Returns a random split with each group in a single split: int8 [N], an index into SPLITS.

    Groups are assigned greedily, the largest first and equal sizes in random order. A group goes to
    the split with the most items missing from its share in `fractions`. The result depends on the
    groups and their sizes, not on the order of the items.
    """
    names, group_of_item, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    room = np.array(fractions) * len(groups)
    split_of_group = np.zeros(len(names), dtype=np.int8)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        split_of_group[group] = room.argmax()
        room[split_of_group[group]] -= sizes[group]
    return split_of_group[group_of_item]


def stratified_split(
    strata: np.ndarray, groups: np.ndarray, fractions: tuple[float, ...], seed: int
) -> np.ndarray:
    """Returns a random split as `drawn_split` does, with the same `fractions` in each stratum."""
    split = np.zeros(len(groups), dtype=np.int8)
    names, stratum_of_item = np.unique(strata, return_inverse=True)
    for stratum in range(len(names)):
        rows = np.flatnonzero(stratum_of_item == stratum)
        split[rows] = drawn_split(groups[rows], fractions, (seed, stratum))
    return split


def complete_split(
    split: np.ndarray,
    fractions: tuple[float, float, float],
    draw: Callable[[np.ndarray, tuple[float, float]], np.ndarray],
) -> tuple[np.ndarray, bool]:
    """Returns a split with all three parts, int8 [N], and whether a part of it was drawn.

    `split` has train and at least one other part. Without a third part, the other part becomes the
    test split, and val is drawn from train in the ratio of `fractions`. `draw(rows, fractions)`
    returns 0 for train and 1 for val.
    """
    if len(set(split)) == len(SPLITS):
        return split, False
    train = np.flatnonzero(split == SPLITS.index("train"))
    whole = np.full(len(split), SPLITS.index("test"), dtype=np.int8)
    both = fractions[0] + fractions[1]
    whole[train] = draw(train, (fractions[0] / both, fractions[1] / both))
    return whole, True


def published_split(
    split: np.ndarray | None,
    strata: np.ndarray,
    names: Sequence[str],
    spec: DrawnSplitSpec,
    origin: tuple[str, str, str],
) -> tuple[np.ndarray, str]:
    """Returns a published split, completed by `complete_split`, or a random split without one.

    The random part has the same shares in each stratum. The second result is the origin of the
    splits in words. `origin` has words for a stratum, for the published splits, and for their parts
    other than train.
    """
    groups, (stratum, given, tested) = np.array(names, dtype=object), origin

    def draw(rows: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
        return stratified_split(strata[rows], groups[rows], shares, spec.seed)

    if split is None:
        words = f"drawn at random from seed {spec.seed}, the same shares in each {stratum}"
        return draw(np.arange(len(groups)), spec.split_fractions), words
    split, is_drawn = complete_split(split, spec.split_fractions, draw)
    return split, f"{given}: {tested} is test, val is drawn from train" if is_drawn else given


def common(strata: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Returns the most frequent stratum of each item's group. Ties go to the first by name."""
    names, stratum_of_item = np.unique(strata, return_inverse=True)
    group_of_item = np.unique(groups, return_inverse=True)[1]
    pairs, counts = np.unique(
        np.stack([group_of_item, stratum_of_item]), axis=1, return_counts=True
    )
    # By group, then count, then name in reverse: the last pair of a group has its stratum.
    order = np.lexsort([-pairs[1], counts, pairs[0]])
    stratum_of_group = np.zeros(group_of_item.max() + 1, dtype=int)
    stratum_of_group[pairs[0][order]] = pairs[1][order]
    return np.asarray(names[stratum_of_group[group_of_item]])


def num_straddling(groups: np.ndarray, split: np.ndarray) -> int:
    """Returns the number of groups with items in several splits. "" is not a group."""
    pairs = {(group, int(part)) for group, part in zip(groups, split, strict=True) if group != ""}
    return sum(number > 1 for number in Counter(group for group, _ in pairs).values())
