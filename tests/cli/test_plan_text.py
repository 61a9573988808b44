"""The text of a plan."""

import re
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.cli.plan_text import data_lines, plan_lines
from mtcon_ray.local import this_machine
from mtcon_ray.planning import Rates
from mtcon_ray.spec import parse_spec, with_values
from tests.plans import plan_of


def test_labels_stand_with_their_kind_and_extent(tmp_path: Path) -> None:
    data = {"kind": "synthetic", "num_items": 300, "tasks": ["attributes", "shape"]}
    spec = parse_spec({"name": "mixed", "data": {**data, "held_out": ["size"]}})
    plan = plan_of(spec, tmp_path, this_machine())
    lines = dict(data_lines(spec.data, plan.num_items, plan.classes, "column 'part'"))
    assert lines["splits"] == "column 'part'"
    assert lines["tasks"] == "attributes (8 labels), shape (5 classes)"
    assert lines["held out"] == "size (a number)"


@pytest.mark.parametrize("scheduler", ["none", "halving"])
def test_early_stopping_is_spoken_of_where_there_is_some(tmp_path: Path, scheduler: str) -> None:
    spec = parse_spec(
        {
            "name": "x",
            "data": {"kind": "synthetic", "num_items": 300},
            "search": {"space": {"train.lr": {"uniform": [0.1, 1]}}, "scheduler": scheduler},
        }
    )
    (line,) = (
        text
        for text in plan_lines(spec, plan_of(spec, tmp_path, this_machine()))
        if text.startswith("  images seen ")
    )
    assert line.endswith(" in all" if scheduler == "none" else " in all before early stopping")


@pytest.mark.parametrize(
    ("limits", "shown"),
    [
        ({}, []),
        ({"max_hours": 1.5}, ["no new trials after 1.5 hours per start"]),
        (
            {"max_hours": 2, "max_device_hours": 10},
            ["no new trials after 2 hours per start or 10 device-hours in all"],
        ),
    ],
)
def test_limits_on_time_are_named(
    tmp_path: Path, limits: dict[str, float], shown: list[str]
) -> None:
    data = {"kind": "synthetic", "num_items": 300}
    spec = parse_spec({"name": "x", "data": data, "search": limits})
    lines = plan_lines(spec, plan_of(spec, tmp_path, this_machine()))
    assert [line[18:] for line in lines if line.startswith("  limits ")] == shown


def test_sweeps_that_a_sweep_starts_from_are_named(tmp_path: Path) -> None:
    data = {"kind": "synthetic", "num_items": 300}
    spec = parse_spec({"name": "x", "data": data, "search": {"start_from": ["a-1", "b-2"]}})
    lines = plan_lines(spec, plan_of(spec, tmp_path, this_machine()))
    assert "  starts from     finished trials of a-1, b-2" in lines


def test_with_patience_epochs_are_at_most_those_of_the_spec(tmp_path: Path) -> None:
    def lines(**train: Any) -> dict[str, str]:
        spec = parse_spec(
            {
                "name": "x",
                "data": {"kind": "synthetic", "num_items": 300},
                "train": train,
                "search": {"space": {"train.lr": {"uniform": [0.1, 1]}}, "scheduler": "halving"},
            }
        )
        plan = plan_of(spec, tmp_path, this_machine())
        assert (plan.epochs_total is None) == bool(train)
        return {line[2:18].strip(): line[18:] for line in plan_lines(spec, plan)}

    without, shown = lines(), lines(patience=3)
    assert "epochs in all" in without["early stopping"]
    assert "epochs in all" not in shown["early stopping"]
    assert shown["plateau"] == "a trial ends after 3 epochs without a new best value"
    assert shown["images seen"].endswith(" in all before early stopping")


def test_the_objective_is_named_with_what_it_is_a_mean_of(tmp_path: Path) -> None:
    def told(*tasks: str, **search: Any) -> str:
        data = {"kind": "synthetic", "num_items": 300, "tasks": list(tasks)}
        spec = parse_spec({"name": "x", "data": data, "search": search})
        lines = plan_lines(spec, plan_of(spec, tmp_path, this_machine()))
        (line,) = (line for line in lines if line.startswith("  objective "))
        return line.removeprefix("  objective ").strip()

    assert told("shape", "colour") == "val/accuracy"
    assert told("shape", "attributes") == "val/score, mean of accuracy, mAP"
    assert told("attributes") == "val/score, mAP"
    weighted = told("shape", "colour", objective="colour")
    assert weighted == "val/objective, accuracy of colour"


def test_what_a_mirror_is_sent_is_estimated(tmp_path: Path) -> None:
    raw = {
        "name": "x",
        "data": {"kind": "synthetic", "num_items": 300},
        "train": {"optimizer": "adamw", "checkpoint_every": 2, "epochs": 20},
        "storage": {"mirror": "s3://results/sweeps/"},
    }
    spec, cluster = parse_spec(raw), ClusterView("here", (NodeKind("node", 2, 0, 1),))
    plan = plan_of(spec, tmp_path, cluster)
    assert plan.parameters is not None
    # Two trials at a time, each with three numbers a parameter, and its network, every minute.
    assert plan.mirror_bytes_per_hour == 2 * 60 * 4 * (3 + 1) * plan.parameters
    (line,) = (text for text in plan_lines(spec, plan) if text.startswith("  mirror "))
    assert re.search(
        r"  at most about [\d.]+ GB an hour with 2 trials at a time, to s3://res", line
    )
    measured = plan_of(spec, tmp_path, cluster, rates=Rates(2.0, 0.0, 0.0))
    assert measured.seconds_per_trial is not None
    epochs = 20 * 3600 / measured.seconds_per_trial
    assert measured.mirror_bytes_per_hour == round(8 * (3 / 2 + 1) * epochs * plan.parameters)
    (line,) = (text for text in plan_lines(spec, measured) if text.startswith("  mirror "))
    assert line[18:].startswith("about ")
    assert plan_of(with_values(spec, {"storage.mirror": None}), tmp_path, cluster) == plan_of(
        spec, tmp_path, cluster
    ).model_copy(update={"mirror_bytes_per_hour": None})
