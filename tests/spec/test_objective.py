"""The field `search.objective`: what a trial's value is."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.display.presentation import resume_line
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.records.folder import check_folder
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from tests.recorded import plan_with, recorded

DATA = {"kind": "synthetic", "tasks": ["shape", "colour"], "held_out": ["mark"]}


def spec_with(objective: Any) -> RunSpec:
    return parse_spec({"name": "x", "data": DATA, "search": {"objective": objective}})


@pytest.mark.parametrize(
    ("objective", "weights", "shares"),
    [
        (None, None, {"shape": 0.5, "colour": 0.5}),
        ("colour", {"colour": 1.0}, {"colour": 1.0}),
        ({"shape": 3, "colour": 1}, {"shape": 3.0, "colour": 1.0}, {"shape": 0.75, "colour": 0.25}),
    ],
)
def test_an_objective_gives_each_task_its_share(
    objective: Any, weights: dict[str, float] | None, shares: dict[str, float]
) -> None:
    """A trial keeps the objective, by which its epochs are selected; so does a stored spec."""
    spec = spec_with(objective)
    for labels in (spec.labels, spec.trial({}).labels, recorded(spec).labels):
        assert (labels.weights, labels.shares) == (weights, shares)


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("mark", "must name tasks .*, got 'mark'; held-out labels choose nothing"),
        ({"shape": 1, "mark": 1}, "must name tasks .*, got 'mark'"),
        ("shpae", "must name tasks .*, got 'shpae'; did you mean 'shape'"),
        ("test/accuracy/shape", "must name tasks .*, got 'test/accuracy/shape'"),
        ({}, "not be empty"),
        ({"shape": 0}, "greater than 0, got 0"),
        ({"shape": 2, "colour": -1}, "greater than 0, got -1"),
        ({"shape": float("nan")}, "finite"),
        (["shape"], "must be a text or be a mapping"),
    ],
)
def test_an_objective_of_no_task_or_no_weight_is_refused(objective: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_with(objective)


def test_a_sweep_is_resumed_with_its_own_objective_alone(tmp_path: Path) -> None:
    """A spec that was recorded before the field existed has the mean over tasks."""
    folder = tmp_path / "sweeps" / "x-1"
    folder.mkdir(parents=True)
    write_beginnings(folder, spec_with(None), plan_with())
    text = (folder / "spec.yaml").read_text()
    (folder / "spec.yaml").write_text(text.replace("  objective: null\n", "", 1))
    assert "objective" not in (folder / "spec.yaml").read_text()
    check_folder(folder, spec_with(None), resume=True, way_on=resume_line)
    with pytest.raises(SweepError, match=r"search\.objective: None then, .colour. now"):
        check_folder(folder, spec_with("colour"), resume=True, way_on=resume_line)
