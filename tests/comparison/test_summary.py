"""The table of a comparison: means over seeds, best in bold, every seed in the CSV."""

from pathlib import Path

import pandas as pd
import pytest

from mtcon_ray.base.status import Status
from mtcon_ray.comparison.row import Row, columns
from mtcon_ray.comparison.summary import markdown, write_tables
from mtcon_ray.records.results import TrialResult
from mtcon_ray.spec.run_spec import parse_spec
from tests.recorded import results_of, trial_of


def trial(seed: int, shape: float, tilt: float, status: Status = Status.FINISHED) -> TrialResult:
    metrics = {
        "val/accuracy": shape - 0.1, "test/accuracy/shape": shape, "test/accuracy_std/shape": 0.02,
        "heldout/accuracy/tilt": tilt, "heldout/accuracy_std/tilt": 0.04, "probe/features": 64.0,
    }  # fmt: skip
    return trial_of(seed, 2, metrics, status=status, seed=seed)


def row(title: str, *trials: TrialResult, method: str = "mtcon") -> Row:
    data = {"kind": "synthetic", "tasks": ["shape"], "held_out": ["tilt"]}
    spec = parse_spec({"name": "x", "data": data, "method": method})
    return Row(title, results_of(spec, *trials))


@pytest.fixture
def rows() -> list[Row]:
    return [
        row("MTCon", trial(0, 0.7, 0.3), trial(1, 0.8, 0.2), trial(2, 0.1, 0.1, Status.FAILED)),
        row("SimCLR", trial(0, 0.6, 0.5)),
        Row("CSN", None, "no triplets | for shape\nmore"),
    ]


def test_scores_are_means_over_finished_seeds(rows: list[Row]) -> None:
    assert columns(rows) == {("test", "shape"): "shape", ("heldout", "tilt"): "tilt, held out"}
    assert markdown(rows).splitlines() == [
        "| system | seeds | features | val/accuracy | shape | tilt, held out |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| MTCon | 2 | 64 | 0.650 | **0.750** | 0.250 |",
        "| SimCLR | 1 | 64 | 0.500 | 0.600 | **0.500** |",
        "| CSN | 0 | — | failed: no triplets / for shape / more | — | — |",
    ]


def test_the_heading_names_the_objective_of_tasks_of_other_kinds(rows: list[Row]) -> None:
    spec = parse_spec({"name": "x", "data": {"kind": "synthetic", "tasks": ["attributes"]}})
    sets = Row("Sets", results_of(spec, trial(0, 0.7, 0.3)))
    assert "| features | val/score | attributes (mAP) |" in markdown([sets])
    assert "| features | val/accuracy, val/score |" in markdown([*rows, sets])


def test_tables_and_picture_are_written_from_what_there_is(rows: list[Row], tmp_path: Path) -> None:
    write_tables(tmp_path / "a", [*rows, row("Begun")])
    written = {path.name for path in (tmp_path / "a").iterdir()}
    assert written == {"table.md", "table.csv", "table.png"}
    data = {"kind": "synthetic", "tasks": [], "held_out": []}
    spec = parse_spec({"name": "x", "data": data, "method": "simclr"})
    write_tables(tmp_path / "c", [Row("No labels", results_of(spec, trial_of(0, 2, {})))])
    assert (tmp_path / "a" / "table.png").read_bytes().startswith(b"\x89PNG")
    table = pd.read_csv(tmp_path / "a" / "table.csv")
    assert list(table["system"]) == ["MTCon", "MTCon", "MTCon", "SimCLR"]
    assert list(table["test/accuracy/shape"]) == [0.8, 0.7, 0.1, 0.6]
    assert list(map(str, table["seed"])) == ["1", "0", "2", "0"]
    write_tables(tmp_path / "b", rows[2:])
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["table.md"]
