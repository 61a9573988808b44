"""Tests of the names of splits in a column, and of drawn splits."""

from typing import Any

import numpy as np
import pytest

from mtcon_ray.data.splits import drawn_split, split_names, stratified_split
from mtcon_ray.errors import DataError
from tests.data.labels import labels_of

NAMES = [
    ("x", "training validation testing", "train val test"),
    ("x", "_train Training_ _VAL_ test", "train train val test"),
    ("split", "0_ 1 _2 0", "train val test train"), ("x", "train eval test", "train val test"),
    ("x", "train dev eval", "train val test"), ("eval_partition", "0 1 2", "train val test"),
    ("Set", "0 1 2", "train val test"), ("sets_sold", "0 1 2", "- - -"),
    ("split", "0 1", "- -"), ("split", "train red", "train -"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "values", "expected"), NAMES)
def test_names_of_splits(column: str, values: str, expected: str) -> None:
    """Values map to splits; in the parameters "_" is a space and "-" no split."""
    words = [v.replace("_", " ") for v in values.split()]
    found = split_names(np.array(words * 3, dtype=object), column)
    assert [found.get(value, "-") for value in words] == expected.split()


@pytest.mark.parametrize("names", ["train val test", "0 1 2"])
def test_an_empty_cell_of_the_split_column_is_refused(files: Any, names: str) -> None:
    words = dict(zip(("train", "val", "test"), names.split(), strict=True))
    files.frame["split"] = [words[name] for name in files.frame["split"]]
    files.frame.loc[[4, 9], "split"] = ["", " "]
    message = r"'split' of .* must name a split in each row: .*, got '' in row 6 and 1 more such"
    with pytest.raises(DataError, match=message):
        labels_of(files.spec())


def test_a_large_group_may_come_into_any_split() -> None:
    """Otherwise a label that goes with the size of a group would differ between splits."""
    groups = np.repeat(np.arange(300), np.arange(300) % 10 + 1)
    is_large, shares = np.arange(300) % 10 >= 5, []
    for seed in range(20):
        split = drawn_split(groups, (0.7, 0.1, 0.2), seed)
        shares.append([is_large[groups[split == i]].mean() for i in range(3)])
        assert np.bincount(split) / len(groups) == pytest.approx([0.7, 0.1, 0.2], abs=0.01)
    assert np.mean(shares, axis=0) == pytest.approx([is_large[groups].mean()] * 3, abs=0.06)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_strata_of_few_items_have_the_shares_together(size: int) -> None:
    strata, groups = np.arange(40).repeat(size), np.arange(40 * size)
    one, other = (stratified_split(strata, groups, (0.7, 0.1, 0.2), seed) for seed in (0, 1))
    assert np.bincount(one).tolist() == [28 * size, 4 * size, 8 * size]
    assert {*strata[one == 1]} != {*strata[other == 1]}


def test_a_large_group_takes_nothing_from_other_strata() -> None:
    strata = np.repeat([0, 1, 2], [500, 200, 200])
    split = stratified_split(strata, np.where(strata == 0, 0, np.arange(900)), (0.7, 0.1, 0.2), 0)
    for stratum in (1, 2):
        counts = np.bincount(split[strata == stratum], minlength=3)
        assert counts == pytest.approx([140, 20, 40], abs=2)
