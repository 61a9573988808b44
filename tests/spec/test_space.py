"""Dimensions and points of a search space."""

from typing import Any

import pytest
from pydantic import ValidationError

from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.space import Dimension, with_lists


def dimension(**kind: Any) -> Dimension:
    return Dimension.model_validate(kind)


IMPOSSIBLE = [
    ({}, "exactly one of loguniform, uniform, int, logint, choice, grid, got none"),
    ({"logint": [0, 8]}, "logint must have a positive low"),
    ({"logint": [1, 8], "step": 1}, "step must come with uniform or int, got it with logint"),
    ({"int": [1, 8], "step": 0.5}, "whole steps, for int through integers, got 0.5"),
    ({"int": [16, 250], "step": 16}, "got 16 for \\[16, 250\\]"),
    ({"uniform": [0, 1], "int": [0, 1]}, "got uniform, int"),
    ({"uniform": [1, 1]}, "low < high"),
    ({"loguniform": [0, 1]}, "positive low"),
    ({"choice": [[1], "[1]"]}, "must not repeat"),
    ({"choice": [1, 1.0]}, "must not repeat"),
    ({"grid": [[0.1, 1], [0.1, 1.0]]}, "must not repeat"),
    ({"choice": [{"a": 1}]}, "a value must be a finite number, .* or a list of these, got {'a"),
    ({"choice": [[[1]]]}, "a value must be a finite number"),
    ({"grid": []}, "at least 1 item"),
    ({"uniform": [0, float("inf")]}, "finite"),
]


@pytest.mark.parametrize(("kind", "rule"), IMPOSSIBLE)
def test_an_impossible_dimension_is_refused(kind: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        dimension(**kind)


VALUES = [
    ({"uniform": [0, 1]}, [0, 0.5, 1], [-0.1, 1.1, True, "x"]),
    ({"int": [1, 5]}, [1, 5, 3.0], [0, 2.5, "3"]),
    ({"int": [16, 64], "step": 16}, [16, 48, 64.0], [24, 80, 16.5]),
    ({"logint": [1, 64]}, [1, 5], [0, 2.5, 65]),
    ({"uniform": [0, 0.3], "step": 0.1}, [0, 0.1, 0.3, 0.2], [0.15, 0.4]),
    ({"choice": [1, "a", None, True]}, [1, "a", None, True], [1.0, "b", 2, False]),
    ({"grid": [[0.2, 1], ["a"]]}, [[0.2, 1], ["a"]], [0.2, [0.2], "a"]),
]


@pytest.mark.parametrize(("kind", "inside", "outside"), VALUES)
def test_contained_values(kind: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    made = dimension(**kind)
    assert [made.contains(v) for v in inside] == [True] * len(inside)
    assert [made.contains(v) for v in outside] == [False] * len(outside)


def test_true_is_not_one() -> None:
    dimension(choice=[1, True, 0, False, [1], [True], "1"])


def test_a_list_is_a_text_to_optuna_and_a_list_to_the_spec() -> None:
    made = dimension(grid=[[0.2, 1.0], ["ü", True], "x", 3])
    assert made.categories == ("[0.2, 1.0]", '["ü", true]', "x", 3)
    assert made.category([0.2, 1]) == "[0.2, 1.0]"
    assert [made.value(c) for c in made.categories] == [[0.2, 1.0], ["ü", True], "x", 3]
    assert made.value([0.2, 1.0]) == [0.2, 1.0]
    params = {"a": "[0.2, 1.0]", "b": "[0.2, 1.0]"}
    assert with_lists({"a": made}, params) == {"a": [0.2, 1.0], "b": "[0.2, 1.0]"}


NUMBERS = [
    ({"space": {"a": {"uniform": [0, 1]}}}, 12),
    ({"space": {"a": {"uniform": [0, 1]}}, "num_trials": 50}, 50),
    ({"space": {"a": {"int": [0, 99]}}, "first_points": [{"a": i} for i in range(13)]}, 13),
    ({"space": {"a": {"grid": list(range(20))}}, "sampler": "grid"}, 20),
    ({"space": {"a": {"grid": list(range(20))}}, "sampler": "grid", "num_trials": 5}, 5),
    ({"space": {"a": {"choice": [1, 2, 3]}}, "num_trials": 50}, 3),
    ({"space": {"a": {"int": [16, 64], "step": 16}}, "num_trials": 50}, 4),
    ({"space": {"a": {"uniform": [0, 0.3], "step": 0.1}}, "num_trials": 50}, 4),
    ({"space": {"a": {"logint": [2, 9]}}, "num_trials": 50}, 8),
    ({"space": {}}, 1),
]


@pytest.mark.parametrize(("fields", "expected"), NUMBERS)
def test_number_of_configurations(fields: dict[str, Any], expected: int) -> None:
    assert SearchSpec.model_validate(fields).num_configurations == expected
