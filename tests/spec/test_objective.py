"""The field `search.objective`: what a trial's value is."""

from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from tests.recorded import recorded

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
        ({}, "not be empty"),
        ({"shape": 2, "colour": -1}, "greater than 0, got -1"),
        ({"shape": float("nan")}, "finite"),
        (["shape"], "must be a text or be a mapping"),
    ],
)
def test_an_objective_of_no_task_or_no_weight_is_refused(objective: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_with(objective)
