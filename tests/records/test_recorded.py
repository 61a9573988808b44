"""Tests of recorded specs and plans."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.comparison.row import Row, objectives
from mtcon_ray.errors import SpecError
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_recorded, parse_spec
from tests.recorded import plan_with


@pytest.fixture
def spec() -> RunSpec:
    return parse_spec({"name": "tiny", "data": {"kind": "synthetic", "num_items": 100}})


def test_kinds_that_only_a_plugin_knows_have_the_common_fields(spec: RunSpec) -> None:
    raw = dump_spec(spec)
    raw["search"]["scheduler"] = {"name": "own", "patience": 3}
    raw["data"] = {"kind": "cards", "tasks": ["suit"], "held_out": ["rank"], "deck": "deck.npz"}
    with pytest.raises(SpecError, match="unknown kind"):
        parse_spec(raw)
    stored = parse_recorded(raw)
    assert stored.scheduler.name == "own"
    assert (stored.labels.tasks, stored.labels.held_out) == (("suit",), ("rank",))
    assert stored.method == spec.method, "as before"
    # The plan knows that its labels are sets, and the sections agreed when the sweep began.
    sets = parse_recorded({**raw, "method": {"name": "multisupcon"}})
    kinds = {"suit": "set", "rank": "classes"}
    results = SweepResults("x", Path("x"), sets, plan_with(kinds=kinds), ())
    assert results.labels.kinds == kinds
    assert objectives([Row("x", results)]) == "val/score"
    assert dump_spec(sets)["data"]["tasks"] == ["suit"], "without pydantic's warnings"


DAMAGED = [
    ("search", 5), ("search", {"space": 5}), ("tracking", {"uri": []}),
    ("method", {"name": [1]}), ("model", {"encoder": {"x": 1}}), ("data", {"kind": 1}),
    ("data", {"kind": "synthetic", "tasks": "shape", "held_out": []}), ("seed", "x"),
    ("evaluate", {"probe": {"solver": "own"}}),
    ("evaluate.probe.lr: unknown key", {"probe": {"solver": "lbfgs", "lr": 0.1}}), ("train", 5),
]  # fmt: skip


@pytest.mark.parametrize(("section", "value"), DAMAGED)
def test_a_damaged_field_is_named(section: str, value: Any, spec: RunSpec) -> None:
    raw = {**dump_spec(spec), section.partition(".")[0]: value}
    with pytest.raises(SpecError, match=rf"grid/spec\.yaml: {section}"):
        parse_recorded(raw, "grid/spec.yaml")
