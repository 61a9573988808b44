"""Tests of the YAML of specs: floats of YAML 1.2, strings that look like them, repeated keys."""

from pathlib import Path

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.safe_yaml import dump_yaml, parse_yaml
from mtcon_ray.spec import dump_spec, load_spec, parse_spec


def test_numbers_are_those_of_yaml_1_2_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "name: x\ndata: {kind: synthetic}\ntrain: {lr: +2E-1, momentum: .5, lr_final: 1e-3}\n"
        "search:\n  space: {train.lr: {grid: [1e-3, 1e-2]}, train.momentum: {choice: [.5, -0.]}}\n"
        "  first_points: [{train.lr: 0.001}]\n"
    )
    spec = load_spec(path, ["search.space.method.temperature={loguniform: [1e-2, 1.]}"])
    space = spec.search.space
    assert space["train.lr"].grid == (0.001, 0.01)
    assert space["train.momentum"].choice == (0.5, 0.0)
    assert space["method.temperature"].loguniform == (0.01, 1)
    assert (spec.train.lr, spec.train.momentum, spec.train.lr_final) == (0.2, 0.5, 0.001)


@pytest.mark.parametrize("name", ["1e3", "1e-3", ".5", "-.5", "1.", "+1E3", "1_000", "on", "a: b"])
def test_a_text_that_looks_like_a_number_stays_a_text_in_a_recorded_spec(
    name: str, tmp_path: Path
) -> None:
    data = {"kind": "table", "csv": "/a.csv", "images": "/a", "tasks": [name], "held_out": ["b"]}
    noise = {**data, "label_noise": {name: 0.1}}
    spec = parse_spec(
        {
            "name": "x",
            "data": noise,
            "search": {
                "space": {"train.optimizer": {"choice": ["sgd"]}, "train.lr": {"grid": [1]}}
            },
        }
    )
    (tmp_path / "spec.yaml").write_text(dump_yaml(dump_spec(spec)))
    assert load_spec(tmp_path / "spec.yaml") == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: x\ntrain: {lr: 1}\nviews: {}\ntrain: {}\n",
            "file must give a key once in a mapping, got 'train' in lines 2 and 4",
        ),
        ("search: [{a: 1, b: {c: 1,\n 'c': 2}}]", "got 'c' in lines 1 and 2"),
    ],
)
def test_a_key_given_twice_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_yaml(text, "file")


def test_a_key_may_be_given_in_two_mappings() -> None:
    assert parse_yaml("a: [{x: 1}, {x: 2}]\nx: {a: 1}", "file") == {
        "a": [{"x": 1}, {"x": 2}],
        "x": {"a": 1},
    }
