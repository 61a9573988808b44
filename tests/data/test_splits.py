"""Names that stand for train, val and test."""

import numpy as np
import pytest

from mtcon_ray.data.splits import split_names


@pytest.mark.parametrize(
    ("column", "values", "expected"),
    [
        ("x", "training validation testing", "train val test"),
        ("x", "Train Dev Test", "train val test"),
        ("x", "train eval test", "train val test"),
        ("x", "train dev eval", "train val test"),
        ("split", "0 1 2", "train val test"),
        ("eval_partition", "0 1 2", "train val test"),
        ("Set", "0 1 2", "train val test"),
        ("fold", "0 1 2", "- - -"),
        ("sets_sold", "0 1 2", "- - -"),
        ("split", "0 1", "- -"),
        ("split", "train red", "train -"),
    ],
)
def test_names_of_splits(column: str, values: str, expected: str) -> None:
    found = split_names(np.array(values.split() * 3, dtype=object), column)
    assert [found.get(value, "-") for value in values.split()] == expected.split()
