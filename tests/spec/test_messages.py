"""Tests of the messages about invalid specs."""

from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec

FORMS = "{loguniform: [low, high]}, {uniform: [low, high]}, {int: [low, high]}"


def refused(raw: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as error:
        parse_spec({"name": "x", **raw})
    return str(error.value).removeprefix("spec: ").split("\n  ")


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (
            {"data": {"kind": "synthetic", "tasks": "a"}},
            "data.tasks must be a valid list, got 'a'; write [a]",
        ),
        (
            {"data": {"kind": "table", "csv": "a", "images": "b", "tasks": [1]}},
            "data.tasks.0 must be a text, got 1; put it",
        ),
        (
            {"method": {"name": "mtcon", "temperature_by_task": {"shape": 1e-7}}},
            "method.temperature_by_task.shape must be greater than or equal to 0.000001, got ",
        ),
        ({"views": {"mean": [1, 2]}}, "views.mean.2: is required"),
        ({"train": {"lr": "fast"}}, "train.lr must be a valid number, got 'fast'"),
        ({"tracking": {"experiment": ""}}, "tracking.experiment must not be empty, got ''"),
        (
            {"model": {"encoder": 3}},
            "model.encoder must be a mapping of fields or the name of a kind",
        ),
        (
            {"resources": {"workers": "x"}},
            "resources.workers must be a valid integer or be a valid list, got 'x'",
        ),
        ({"search": {"space": [1]}}, "search.space must be a mapping, got [1]"),
        ({"train": {"lr_schedule": "cosin"}}, "must be 'cosine' or 'exponential', got 'cosin'"),
    ],
)
def test_a_problem_says_field_rule_value_and_way_out(raw: dict[str, Any], message: str) -> None:
    (line,) = refused(raw)
    assert message in line
    assert "Input" not in line


@pytest.mark.parametrize(
    "raw",
    [
        {"version": True},
        {"train": {"lr": True}},
        {"resources": {"gpus": False}},
        {"search": {"space": {"train.lr": {"choice": [True]}}}},
        {"search": {"space": {"train.lr": {"uniform": [True, 2]}}}},
        {"resources": {"workers": [True, 2]}},
    ],
)
def test_a_boolean_is_no_number(raw: dict[str, Any]) -> None:
    (line,) = refused(raw)
    assert "must be a number, got true or false" in line


def test_only_the_first_problems_are_listed() -> None:
    lines = refused({"train": {f"k{i}": 1 for i in range(50)}, "views": {"flip": 2}})
    assert len(lines) == 21
    assert lines[-1] == "... and 31 more problems"


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ({"log_uniform": [0.1, 1]}, f"train.lr.log_uniform: unknown key; write {FORMS}"),
        ([0.1, 0.5], f"search.space.train.lr must be one of {FORMS}"),
        ({"grid": 0.1}, "search.space.train.lr.grid must be a valid list, got 0.1"),
        (
            {"grid": [{"a": 1}]},
            "grid.0: a value must be a finite number, a text, true, false, null",
        ),
    ],
)
def test_a_problem_of_a_dimension_shows_the_kinds(dimension: Any, message: str) -> None:
    (line,) = refused({"search": {"space": {"train.lr": dimension}}})
    assert message in line


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"train": {"weight_deca": 3}}, "did you mean 'weight_decay'?"),
        ({"lr": 3}, "lr: unknown key; did you mean 'train.lr' or 'evaluate."),
        ({"train": {"temperature": 3}}, "did you mean 'method.temperature'?"),
        (
            {"model": {"encoder": {"name": "vit", "stages": 3}}},
            "stages: unknown key; it belongs to name 'resnet18'",
        ),
        ({"qqq": 3}, "qqq: unknown key; known: data, evaluate,"),
    ],
)
def test_an_unknown_key_names_the_field_that_is_meant(raw: dict[str, Any], message: str) -> None:
    (line,) = refused(raw)
    assert message in line
