"""A plan as people read it."""

from pathlib import Path

from mtcon_ray.cli.plan_text import data_lines
from mtcon_ray.local import this_machine
from mtcon_ray.plan import make_plan
from mtcon_ray.spec import parse_spec


def test_labels_stand_with_their_kind_and_extent(tmp_path: Path) -> None:
    data = {"kind": "drawn", "num_items": 300, "tasks": ["attributes", "shape"]}
    spec = parse_spec({"name": "mixed", "data": {**data, "held_out": ["size"]}})
    lines = dict(data_lines(spec, make_plan(spec, tmp_path, this_machine())))
    assert lines["tasks"] == "attributes (8 labels), shape (5 classes)"
    assert lines["held out"] == "size (a number)"
