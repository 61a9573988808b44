"""Tests of the plan of data where few items have a label."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mtcon_ray.plan.plan import Plan
from tests.plan.test_plan import ONE, spec_of
from tests.plans import plan_of


def partly_labelled(tmp_path: Path, **sections: Any) -> Plan:
    """Returns the plan of 1,500 validation items, 10 of them with a label of `rare`."""
    Image.new("RGB", (4, 4)).save(tmp_path / "0.png")
    rows = [
        f"0.png,{split},{'ab'[i % 2]},{'xy'[i % 2] if i < labelled else ''}"
        for split, number, labelled in (("train", 40, 40), ("val", 1500, 10), ("test", 20, 1))
        for i in range(number)
    ]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,often,rare", *rows]))
    data = {"kind": "table", "csv": str(tmp_path / "labels.csv"), "images": str(tmp_path)}
    search = {"space": {"train.lr": {"uniform": [0.1, 1]}}}
    sections = {"search": search, "train": {"batch_size": 8}} | sections
    return plan_of(spec_of(data=data | {"tasks": ["often", "rare"]}, **sections), tmp_path, ONE)


def test_the_standard_error_is_that_of_the_task_with_the_fewest_labels(tmp_path: Path) -> None:
    """Only the tasks of the objective count, and only the items that a probe reads."""
    rare = {"short_probe": {"max_items": 1500}}
    plan = partly_labelled(tmp_path, evaluate=rare)
    assert plan.standard_error == pytest.approx(0.5 / 10**0.5)
    *_, few, noise = plan.warnings
    assert few == (
        "'rare' has a label in 1 of the items of the test split: with fewer than 5, a score and "
        "its deviation say nothing"
    )
    assert "and a probe has 10: val has 10 with a label of 'rare', and" in noise
    search = {"space": {"train.lr": {"uniform": [0.1, 1]}}, "objective": "often"}
    plan = partly_labelled(tmp_path, evaluate=rare, search=search)
    assert plan.standard_error == pytest.approx(0.5 / 1500**0.5)
    assert "standard error" not in plan.warnings[-1]
