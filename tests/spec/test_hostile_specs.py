"""Tests that a spec or a comparison of at most 1 MB is answered soon, whatever it holds."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.safe_yaml import MAX_SPEC_BYTES
from mtcon_ray.comparison.comparison_spec import load_comparison
from mtcon_ray.errors import SpecError
from tests.cli.conftest import run

pytestmark = pytest.mark.ray
# Seconds of processor time. On one idle core the slowest case takes a quarter.
MAX_SECONDS = 20
LR, TEMPERATURE = "train.lr", "method.temperature"
CLUSTER = "available_node_types: {head: {resources: {CPU: 8}}}\nhead_node_type: head\n"


def grid(count: int, at: float = 0.01) -> dict[str, Any]:
    return {"grid": [round(at + 1e-6 * i, 6) for i in range(count)]}


def searched(space: dict[str, Any], sampler: str = "tpe", **fields: Any) -> dict[str, Any]:
    return {"search": {"space": space, "sampler": sampler, **fields}}


def table(**fields: Any) -> dict[str, Any]:
    return {"data": {"kind": "table", "csv": "/none.csv", "images": "/none", **fields}}


def names(count: int) -> list[str]:
    return [f"t{i}" for i in range(count)]


HUGE = {"int": [2, 2**53]}
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown keys": (dict.fromkeys(names(50_000), 1), "t0: unknown key; .* more problems"),
    "many searched fields": (searched(dict.fromkeys(names(20_000), grid(1))), "at most 1,000 val"),
    "product that overflows": (
        searched({LR: grid(400), TEMPERATURE: grid(400), "train.momentum": grid(200)}, "grid"),
        "sampler grid must have at most 100,000 combinations, got 32,000,000; list fewer",
    ),
    "large grid": (searched({LR: grid(300), TEMPERATURE: grid(300)}, "grid"), "90,000 configur"),
    "tasks": (table(tasks=names(60_000)), "data.tasks must have at most 1000 items"),
    "large batches": (searched({"train.batch_size": HUGE}), "train.batch_size must be at most"),
    "large ranges": (
        searched({"train.epochs": {"int": [1, 100_000]}, "train.patience": HUGE}),
        "12 configurations",
    ),
    "infinite span": (searched({LR: {"uniform": [-1e308, 1e308]}}), "must span a finite range"),
    "endless steps": (searched({LR: {"uniform": [0, 1], "step": 1e-300}}), "in whole steps"),
    "long name": ({"name": "-" * 900_000}, "name must match pattern"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_plan_answers_soon(case: str, tmp_path: Path) -> None:
    raw, expected = CASES[case]
    spec, cluster = tmp_path / "spec.yaml", tmp_path / "cluster.yaml"
    spec.write_text(json.dumps({"name": "x", "train": {"epochs": 1}, **raw}))
    cluster.write_text(CLUSTER)
    assert spec.stat().st_size <= MAX_SPEC_BYTES
    start = time.process_time()
    result = run("plan", spec, "--root", tmp_path, "--cluster", cluster)
    assert time.process_time() - start < MAX_SECONDS
    assert result.exit_code in (0, 2), result.output
    output = " ".join(result.output.split())
    assert "unexpected" not in output
    assert len(output) < 10_000
    assert re.search(expected, output), output


GRID = {"epochs": 1, "sampler": "grid", "space": {LR: grid(30), TEMPERATURE: grid(30)}}


COMPARISONS = [
    (100, {"epochs": 1, "space": {LR: grid(101)}}, "at most 10,000 values, .* got 10,100"),
    (20, GRID, "at most 10,000 configurations over all systems, got 18,000"),
    (20, {"epochs": 1, "space": {LR: grid(500)}}, None),
]


@pytest.mark.parametrize(("systems", "tune", "expected"), COMPARISONS)
def test_a_comparison_is_read_soon(systems: int, tune: Any, expected: Any, tmp_path: Path) -> None:
    path = tmp_path / "comparison.yaml"
    each = {f"system {i}": {"method": "mtcon"} for i in range(systems)}
    base = {"plugins": [], "data": {"kind": "synthetic"}}
    path.write_text(json.dumps({"name": "x", "base": base, "systems": each, "tune": tune}))
    start = time.process_time()
    if expected is None:
        assert len(load_comparison(path).tuning) == systems
    else:
        with pytest.raises(SpecError, match=expected):
            load_comparison(path)
    assert time.process_time() - start < MAX_SECONDS
