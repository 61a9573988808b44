"""A comparison's YAML: one base, a method per system, and checks before the first training."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from tests.cli.conftest import accepted
from tests.comparison.conftest import Load

SECTION = {"model.head_dim": 16, "model": {"encoder": "small"}}  # it comes before its field
SUPCON = {"method": {"name": "supcon", "task": "colour"}, "changes": {"train.lr": 0.05, **SECTION}}
FEW: dict[str, Any] = {
    "version": 1,
    "base": {"data": {"kind": "synthetic"}, "train": {"epochs": 4}},
    "systems": {"MTCon": {"method": "mtcon", "seeds": 3}, "SupCon, colour": SUPCON},
}


def test_every_system_is_a_sweep_over_its_seeds(load: Load) -> None:
    comparison = load("train.epochs=6", **FEW)
    first, second = comparison.specs.values()
    assert list(comparison.specs) == ["MTCon", "SupCon, colour"]
    assert (first.name, second.name) == ("few-mtcon", "few-supcon-colour")
    assert (first.search.repeats, second.search.repeats) == (3, 1)
    assert first.search.num_configurations == 1
    assert first.scheduler.name == "none"
    assert (first.train.epochs, second.train.epochs) == (6, 6)
    assert (first.train.lr, second.train.lr) == (0.2, 0.05)
    assert (second.method.name, second.model.head_dim) == ("supcon", 16)
    assert first.data == second.data


def test_one_system_can_be_chosen(load: Load) -> None:
    one = load(only=["MTCon"], **FEW)
    assert (list(one.specs), one.name) == (["MTCon"], "few-only"), "the table of all is kept"
    with pytest.raises(SpecError, match="no system 'CSN'; systems: MTCon, SupCon, colour"):
        load(only=["CSN"], **FEW)


CLAIM = {"better": "MTCon", "than": "SupCon, colour", "label": "tilt"}
NO_SYSTEM, NO_LABEL = {**CLAIM, "better": "MTCom"}, {**CLAIM, "label": "shap"}
TWINS = {title: {"method": "mtcon"} for title in ("A b", "a-B")}


def test_a_claim_names_systems_and_a_label(load: Load) -> None:
    given = [CLAIM, {**CLAIM, "label": "shape", "margin": 0.01}]
    sections = {**FEW, "base": {"data": {"kind": "synthetic", "held_out": ["tilt"]}}}
    claims = load(**sections, claims=given).claims
    assert [(c.better, c.than, c.label, c.margin) for c in claims] == [
        ("MTCon", "SupCon, colour", "tilt", 0.0),
        ("MTCon", "SupCon, colour", "shape", 0.01),
    ]
    assert load(only=["MTCon"], **sections, claims=given).claims == ()


def test_a_setting_that_does_not_reach_a_system_is_told(load: Load, tmp_path: Path) -> None:
    load(**FEW)
    given = ("--set", "train={lr: 0.2}", "--set", "train.epochs=6", "--root", tmp_path)
    told = accepted("compare", tmp_path / "few.yaml", "--plan", *given).stderr
    assert told == "note: --set train does not reach 'SupCon, colour', whose `changes` have it\n"


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("systems", {"A": {"method": {"name": "mtcom"}}}, "systems.A: .*did you mean 'mtcon'"),
        ("base", {"search": {"num_trials": 3}}, r"search\.num_trials must be left out"),
        ("base", {"search": ["max_hours"]}, r"search must be a mapping, got \['max_hours'\]"),
        ("base", {"evaluate": {"test": False}}, r"systems.MTCon: evaluate\.test must be true"),
        ("base", {"train": {"epoch": 2}}, "systems.MTCon: train.epoch: .*did you mean 'epochs'"),
        ("claims", [CLAIM, NO_SYSTEM], r"1\.better must name a system, got 'MTCom'; .* 'MTCon'\?"),
        ("claims", [{**CLAIM, "margin": 1}], "claims.0.margin must be less than 1, got 1"),
        ("claims", [{**CLAIM, "than": "MTCon"}], "must name two systems, got 'MTCon' twice"),
        ("claims", [NO_LABEL], r"0\.label must be a .* of 'MTCon', got 'shap'; .* mean 'shape'\?"),
        ("systems", TWINS, r"titles must differ .* \['few-a-b'\] twice"),
    ],
)
def test_errors_name_their_system(load: Load, section: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load(**{**FEW, section: value})
