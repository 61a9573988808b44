"""Splits of the table source: by a column or drawn, in groups, with equal shares of classes."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from mtcon_ray.errors import DataError
from tests.data.labels import labels_of


def test_drawn_split_keeps_groups_whole_and_shares_near(files: Any) -> None:
    """Groups of two items stay together; an item without a group is a group by itself."""
    files.frame["shoe"] = ["" if row < 4 else f"shoe {row // 2}" for row in range(20)]
    spec = files.spec(split_column=None, group_column="shoe", split_fractions=(0.6, 0.2, 0.2))
    table = labels_of(spec)
    assert np.bincount(table.split).tolist() == [12, 4, 4]
    assert (table.split[4::2] == table.split[5::2]).all()
    assert table.warnings == ()


def test_without_a_column_of_that_name_the_default_draws_a_split(files: Any) -> None:
    assert labels_of(files.spec()).split_origin == "column 'split'"
    del files.frame["split"]
    table = labels_of(files.spec())
    assert (table.split == labels_of(files.spec(split_column=None)).split).all()
    assert table.split_origin == "drawn at random from seed 0"
    # The data have a seed of their own, because all repeats share the test images.
    assert (labels_of(files.spec(seed=1)).split != table.split).any()


def test_a_drawn_split_may_have_the_same_shares_of_each_class(files: Any) -> None:
    files.frame["kind"] = ["a" if row < 10 else "b" for row in range(20)]
    table = labels_of(files.spec(split_column=None, stratify=["kind"]))
    assert [np.bincount(part).tolist() for part in table.split.reshape(2, 10)] == [[7, 1, 2]] * 2
    assert table.split_origin.endswith(", the same shares in each class of kind")
    both = labels_of(files.spec(split_column=None, stratify=["kind", "tone"], seed=1))
    for column in ("kind", "tone"):
        assert (pd.crosstab(files.frame[column], both.split)[0] >= 6).all()


def test_a_column_of_splits_is_not_stratified(files: Any) -> None:
    with pytest.raises(DataError, match="stratify must go with a random split, got column 'split'"):
        labels_of(files.spec(stratify=["kind"]))


def test_groups_stay_whole_in_a_stratified_split(files: Any) -> None:
    """A group that has items of several classes belongs to one of them, as a whole."""
    files.frame["shoe"] = [f"shoe {row // 2}" for row in range(20)]
    files.frame["kind"] = ["ab"[row % 2 if 4 < row < 15 else row > 9] for row in range(20)]
    for seed in range(3):
        spec = files.spec(split_column=None, group_column="shoe", stratify=["kind"], seed=seed)
        split = labels_of(spec).split
        assert (split[::2] == split[1::2]).all()
