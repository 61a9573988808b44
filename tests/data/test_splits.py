"""Tests of the names of splits in a column."""

from typing import Any

import numpy as np
import pytest

from mtcon_ray.data.splits import split_names
from mtcon_ray.errors import DataError
from tests.data.labels import labels_of


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("x", "training validation testing", "train val test"),
        ("x", "_train Training_ _VAL_ test", "train train val test"),
        ("split", "0_ 1 _2 0", "train val test train"), ("x", "train eval test", "train val test"),
        ("x", "train dev eval", "train val test"), ("eval_partition", "0 1 2", "train val test"),
        ("Set", "0 1 2", "train val test"), ("sets_sold", "0 1 2", "- - -"),
        ("split", "0 1", "- -"), ("split", "train red", "train -"),
    ],
)  # fmt: skip
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
