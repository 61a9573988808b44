"""The text of a plan."""

import re
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.comparison.comparison_spec import ClaimSpec
from mtcon_ray.comparison.stages import power_lines, stage_lines
from mtcon_ray.display.plan_text import data_lines, plan_lines
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.local import this_machine
from mtcon_ray.plan.planning import Rates
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.spec.space import grid_points
from tests.plans import plan_of
from tests.recorded import plan_with


def test_labels_stand_with_their_kind_and_extent(tmp_path: Path) -> None:
    data = {"kind": "synthetic", "num_items": 300, "tasks": ["attributes", "shape"]}
    spec = parse_spec({"name": "mixed", "data": {**data, "held_out": ["tilt"]}})
    plan = plan_of(spec, tmp_path, this_machine())
    lines = dict(data_lines(spec.data, plan.model_copy(update={"split_origin": "column 'part'"})))
    assert lines["splits"] == "column 'part'"
    assert lines["tasks"] == "attributes (8 labels), shape (5 classes)"
    assert lines["held out"] == "tilt (4 classes)"


SMALL = {"name": "small", "width": 8}
TWO_CPUS = ClusterView("here", (NodeKind("node", 2, 1, 1),))
CSN = {"name": "csn", "num_triplets": 1000}


def searching(space: dict[str, Any], search: dict[str, Any] | None = None, **raw: Any) -> RunSpec:
    """Returns a spec with 2,800 training images that searches `space`, by default all of it."""
    search = {"space": space, **(search or {"sampler": "grid", "scheduler": "none"})}
    sections = {"data": {"kind": "synthetic"}, "model": {"encoder": SMALL}, "search": search}
    return parse_spec({"name": "x", **sections, **raw})


def rows_of(spec: RunSpec, root: Path, **options: Any) -> dict[str, str]:
    plan = plan_of(spec, root, TWO_CPUS, **options)
    return {line[2:18].strip(): line[18:] for line in plan_lines(spec, plan)}


def test_searched_sizes_are_told_for_all_trials(tmp_path: Path) -> None:
    def told(path: str, *values: int) -> str:
        return rows_of(searching({path: {"grid": [*values]}}), tmp_path)["epochs"]

    assert told("train.epochs", 1, 2, 100) == "1 to 100 of 43 steps, 128 views a step"
    sizes = "20 of 4 to 350 steps, 16 to 1,200 views a step; 60 epochs in all"
    assert told("train.batch_size", 8, 16, 600) == sizes


def test_a_shared_gpu_needs_mps_with_graphs(tmp_path: Path) -> None:
    def is_told(gpus: float, how: str, *rates: float) -> bool:
        space = {"train.lr": {"grid": [0.1, *rates]}}
        spec = searching(space, train={"compile": how}, resources={"gpus": gpus})
        return "sharing a GPU" in rows_of(spec, tmp_path)

    assert is_told(0.5, "graphs", 0.2)
    others = (0.5, "graphs"), (1, "graphs", 0.2), (0.5, "none", 0.2), (0, "graphs", 0.2)
    assert not any(is_told(*each) for each in others)


@pytest.mark.parametrize(
    ("space", "raw"),
    [
        ({"train.batch_size": [8, 16, 600], "train.epochs": [3, 5]}, {}),
        ({"views.num_views": [4, 8], "train.batch_size": [8, 300]}, {}),
        ({"method.num_triplets": [500, 900], "train.batch_size": [64, 80]}, {"method": CSN}),
        ({"model.encoder.width": [16, 32], "model.head_dim": [16, 64], "train.lr": [0.1, 1]}, {}),
        ({"model.embedding_dim": [None, 8], "model.head_hidden": [16, None]}, {}),
    ],
)
def test_counts_of_a_grid(tmp_path: Path, space: dict[str, list[Any]], raw: dict[str, Any]) -> None:
    grid = {path: {"grid": values} for path, values in space.items()}
    spec = searching(grid, {"sampler": "grid", "repeats": 2, "scheduler": "none"}, **raw)
    plan = plan_of(spec, tmp_path, TWO_CPUS)
    points = grid_points(spec.search.space)
    trials = [plan_of(spec.trial(point), tmp_path, TWO_CPUS) for point in points]
    for field in ("epochs", "steps_per_epoch", "views_per_step", "images_per_trial", "parameters"):
        counts = [getattr(trial, field) for trial in trials]
        assert getattr(plan, field) == max(counts), field
        assert plan.least.get(field, max(counts)) == min(counts), field


def test_sums_over_trials_of_different_epochs_are_bounds(tmp_path: Path) -> None:
    space = {"train.batch_size": {"int": [9, 16]}, "train.epochs": {"logint": [2, 10]}}
    rows = rows_of(searching(space, {"num_trials": 3, "scheduler": "asha"}), tmp_path)
    assert rows["early stopping"] == "asha after epochs 3, 5 of 10"
    assert rows["epochs"] == "2 to 10 of 175 to 311 steps, 18 to 32 views a step"
    grid = searching({"train.epochs": {"grid": [1, 2, 100]}})
    rows = rows_of(grid, tmp_path, rates=Rates(100.0, 0.0, 0.0))
    assert rows["epochs"].startswith("1 to 100 of ")
    assert " at most on" in rows["device-hours"]


def test_a_comparison_sums_what_searched_sizes_make_of_its_sweeps(tmp_path: Path) -> None:
    def shown(space: dict[str, Any], **search: Any) -> list[str]:
        plan = plan_of(searching(space, search), tmp_path, TWO_CPUS)
        return re.split(r"\s{2,}", stage_lines([("a", "tune", plan)])[1].strip())[2:]

    epochs, batches = {"train.epochs": {"grid": [1, 100]}}, {"train.batch_size": {"grid": [8, 600]}}
    assert shown(epochs, scheduler="none") == ["2", "at most 200", "2 x 1 to 100 epochs"]
    assert shown(batches, scheduler="none") == ["2", "40", "2 x 20 epochs"]
    what = "2 x 20 epochs, halving after epochs 7"
    assert shown(batches, scheduler="halving") == ["2", "27", what]


def test_a_comparison_s_plan_says_what_its_claims_will_detect() -> None:
    def line(seeds: int, test: int, num_claims: int = 12) -> str:
        plan = plan_with(repeats=seeds, num_items={"train": 6432, "test": test})
        claims = [ClaimSpec(better="a", than="bc"[i % 2], label="shape") for i in range(num_claims)]
        fixed = plan.model_copy(update={"repeats": 1, "images_per_trial": 0})  # without training
        plans = {"a": plan, "b": plan, "c": fixed}
        (found,) = power_lines(claims, [(t, "seeds", each) for t, each in plans.items()])
        return found

    assert "a difference of 3.9 points of accuracy (12 claims, 3 seeds, 1,837 test" in line(3, 1837)
    assert float(line(10, 10_000).split()[7]) < 2
    assert line(2, 1837).startswith("no claim will be decided: 12 claims, 2 seeds")
    single = "no claim will be decided: 1 claim, 1 seed, 1,837"
    assert line(1, 1837, num_claims=1).startswith(single)
    assert power_lines([], [("a", "seeds", plan_with())]) == []
