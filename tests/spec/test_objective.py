"""The field `search.objective`: what a trial's value is."""

from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from tests.recorded import recorded

DATA = {"kind": "synthetic", "tasks": ["shape", "colour"], "held_out": ["mark"]}


def spec_with(objective: Any, method: str = "mtcon", **data: Any) -> RunSpec:
    sections = {"method": method, "data": {**DATA, **data}, "search": {"objective": objective}}
    return parse_spec({"name": "x", **sections})


SHARES = [
    (None, {"score/shape": 0.5, "score/colour": 0.5}),
    ("score", {"score/shape": 0.5, "score/colour": 0.5}),
    ("colour", {"score/colour": 1.0}),
    ({"shape": 3, "colour": 1}, {"score/shape": 0.75, "score/colour": 0.25}),
    ("knn", {"knn/shape": 0.5, "knn/colour": 0.5}),
    ("head/map_at_r/colour", {"head/map_at_r/colour": 1.0}),
    (
        {"score": 1, "shape": 1, "recall_at_1/shape": 2},
        {"score/shape": 0.375, "score/colour": 0.125, "recall_at_1/shape": 0.5},
    ),
]


@pytest.mark.parametrize(("objective", "shares"), SHARES)
def test_an_objective_gives_each_score_its_share(objective: Any, shares: dict[str, float]) -> None:
    """A trial keeps the objective, by which its epochs are selected; so does a stored spec."""
    spec = spec_with(objective)
    for labels in (spec.labels, spec.trial({}).labels, recorded(spec).labels):
        assert (labels.weights is None) == (objective is None)
        assert {"/".join(place): share for place, share in labels.shares.items()} == shares


REFUSED = [
    ("mark", "must name tasks .*, got 'mark'; known: colour, head/"),
    ({"shape": 1, "mark": 1}, "must name tasks .*, got 'mark'"),
    ("shpae", "must name tasks .*, got 'shpae'; did you mean 'shape'"),
    ("test/knn/shape", "must name tasks .*, got 'test/knn/shape'; known: colour, head/"),
    ("mapatr", "must name .*, a metric or METRIC/TASK, got 'mapatr'; did you mean 'map_at_r'"),
    ({}, "have at least 1 item, got {}"),
    ({"shape": 2, "colour": -1}, "greater than 0, got -1"),
    ({"shape": float("nan")}, "finite"),
    (["shape", "knn"], r"must be a text or be a mapping, got \['shape', 'knn'\]"),
]


@pytest.mark.parametrize(("objective", "message"), REFUSED)
def test_an_objective_of_no_task_or_no_weight_is_refused(objective: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        spec_with(objective)


@pytest.mark.parametrize(
    "objective", ["knn/attributes", "knn", {"attributes": 1, "map_at_r/attributes": 1}]
)
def test_a_metric_of_classes_needs_classes(objective: Any) -> None:
    with pytest.raises(SpecError, match=r"; (knn|map_at_r) needs classes, got \['set'\]"):
        spec_with(objective, tasks=["attributes"])
    with pytest.raises(SpecError, match="leave it out, because without tasks val/rankme is"):
        spec_with(objective, tasks=[], method="simclr")
