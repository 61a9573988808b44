"""Tests of class codes: classes that only the test split has do not change those of the others."""

from typing import Any

import numpy as np
import pytest

from mtcon_ray.evaluation.baseline import majority_shares
from tests.data.labels import labels_of


@pytest.mark.parametrize("field", ["tasks", "held_out"])
def test_classes_of_the_test_split_alone_change_no_other_code(files: Any, field: str) -> None:
    """Such classes get codes after all others, here although their names sort first and last.

    Their items count as errors, not as missing, and no such class is the majority: no classifier
    can predict it.
    """
    files.frame["brand"] = files.frame["kind"]
    fields = {"tasks": ["brand"]} if field == "tasks" else {"held_out": ["brand"]}
    before = labels_of(files.spec(**fields))
    assert before.unseen == {}
    files.frame.loc[[4, 9, 14], "brand"] = ["0", "z", "z"]
    table = labels_of(files.spec(**fields))
    assert table.classes["brand"] == before.classes["brand"] == ("a", "b")
    assert table.size_of("brand") == 2
    assert table.unseen == {"brand": ("0", "z")}
    assert table.labels["brand"][[4, 9, 14]].tolist() == [2, 3, 3]
    assert majority_shares(table, ["brand"]) == {"brand": 0.25}
    assert table.known("brand").all()
    others = np.delete(np.arange(20), [4, 9, 14])
    assert (table.labels["brand"][others] == before.labels["brand"][others]).all()
    assert table.warnings == (
        "label column 'brand': 2 of 4 classes are not in the train split and cannot be predicted "
        "(0, z)",
    )
