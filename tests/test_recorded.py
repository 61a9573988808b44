"""Tests of recorded specs and plans, of this and of earlier versions."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.evaluation.spec import EVALUATION, SGDProbeSpec
from mtcon_ray.recorded import RecordedSpec, check_evaluation, load_recorded, parse_recorded
from mtcon_ray.spec import RunSpec, dump_spec, parse_spec

# Section `evaluate` as recorded by versions without evaluate.probe.solver.
OLD_EVALUATE: dict[str, Any] = {
    "every": 1,
    "select": "last",
    "short_probe": {"epochs": 8, "batch_size": 64, "lr": 0.1, "max_items": 512},
    "probe": {"epochs": 20, "batch_size": 64, "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0},
    "label_sets": {"loss": "asymmetric", "ema": 0.9997},
    "numbers": {"penalties": [0.1]},
    "bootstrap": 1000,
    "batch_size": 256,
}


@pytest.fixture
def spec() -> RunSpec:
    return parse_spec({"name": "tiny", "data": {"kind": "synthetic", "num_items": 100}})


def test_a_spec_of_before_the_solvers_is_read_as_what_it_meant(
    tmp_path: Path, spec: RunSpec
) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**dump_spec(spec), "evaluate": OLD_EVALUATE}))
    evaluate = load_recorded(path).evaluate
    assert evaluate.probe == SGDProbeSpec(solver="sgd", momentum=0.9)
    assert evaluate.short_probe.max_items == 512
    assert evaluate.label_sets.ema == 0.9997


def test_a_spec_of_this_version_is_read_as_it_is(tmp_path: Path, spec: RunSpec) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(dump_spec(spec)))
    assert load_recorded(path) == spec


def test_a_recorded_compilation_of_kernels_is_read_as_none(tmp_path: Path, spec: RunSpec) -> None:
    raw = dump_spec(spec)
    assert raw["train"]["compile"] == "none"
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({**raw, "train": {**raw["train"], "compile": "kernels"}}))
    assert load_recorded(path) == spec
    with pytest.raises(SpecError, match=r"train\.compile must be 'none' or 'graphs'"):
        parse_spec({**raw, "train": {**raw["train"], "compile": "kernels"}})


def test_a_users_spec_in_the_old_form_is_refused(spec: RunSpec) -> None:
    """It is refused rather than read with another meaning: the default solver has changed."""
    with pytest.raises(SpecError, match=r"evaluate\.probe\.lr.*belongs to solver 'sgd'"):
        parse_spec({**dump_spec(spec), "evaluate": {"probe": {"lr": 0.1}}})


@pytest.mark.parametrize("plan", [{}, {"evaluation": EVALUATION - 1}])
def test_accuracies_of_an_earlier_evaluation_are_not_gone_on_with(
    plan: dict[str, int], tmp_path: Path
) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(SweepError, match=r"begun with the probes of this version.*start anew"):
        check_evaluation(tmp_path)


@pytest.mark.parametrize("plan", ["", "[]", "[" * 100_000])
def test_a_damaged_plan_is_named_with_the_way_out(plan: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(SweepError, match=r"plan\.json must hold the plan .*; delete it, a resume"):
        check_evaluation(tmp_path)
    (tmp_path / "plan.json").unlink()
    check_evaluation(tmp_path)


@pytest.mark.parametrize("section", ["train", "evaluate", "search", "tracking"])
def test_a_section_that_is_none_is_named(section: str, spec: RunSpec) -> None:
    raw = {**dump_spec(spec), section: 3}
    with pytest.raises(SpecError, match=section):
        parse_recorded(raw, where="spec.yaml")
    if section in ("search", "tracking"):
        with pytest.raises(SpecError, match=section):
            getattr(RecordedSpec(raw), section)


def test_accuracies_of_this_evaluation_are_gone_on_with(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"evaluation": EVALUATION}))
    check_evaluation(tmp_path)


@pytest.mark.parametrize(
    ("section", "value", "read"),
    [
        ("search", 5, "search"),
        ("search", {"space": 5}, "search"),
        ("search", [], "scheduler"),
        ("search", {"scheduler": {"nam": "asha"}}, "scheduler"),
        ("tracking", {"uri": []}, "tracking"),
        ("method", {"name": [1]}, "method"),
        ("method", 7, "method"),
        ("model", {"encoder": {"x": 1}}, "encoder"),
        ("data", {"kind": 1}, "data"),
        ("data", {"tasks": 0.5, "held_out": []}, "labels"),
        ("data", {"tasks": "shape", "held_out": []}, "labels"),
        ("data", {"tasks": [["shape"]], "held_out": []}, "labels"),
        ("seed", "x", "seed"),
        ("evaluate", {"select": []}, "select"),
        ("evaluate", {"select": "bes"}, "select"),
        ("evaluate", {"neighbours": None}, "neighbours"),
        ("train", 5, "whole"),
        ("evaluate", [], "whole"),
        ("evaluate", {"probe": 5, "short_probe": 6}, "whole"),
    ],
)
def test_a_damaged_field_is_named(section: str, value: Any, read: str, spec: RunSpec) -> None:
    """Also by what reads single fields and not the whole spec."""
    raw = {**dump_spec(spec), section: value}
    with pytest.raises(SpecError, match=rf"grid/spec\.yaml.*{section}"):
        getattr(RecordedSpec(raw, "grid/spec.yaml", {"shape": "classes"}), read)
