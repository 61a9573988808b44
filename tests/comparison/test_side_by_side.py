"""Two sweeps side by side: scores of the same items, and what differs in their specs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.comparison.side_by_side import paired_differences, side_by_side, winners
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import parse_spec
from tests.recorded import plan_with, results_of, save_wrong, trial_of
from tests.some import some

Make = Callable[..., SweepResults]
SPACE = {"method.temperature": {"grid": [0.1, 0.5]}}
DATA = {"kind": "synthetic", "tasks": ["shape"], "held_out": ["tilt"]}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Returns a function that makes a sweep whose winner has `wrong` of 300 test items wrong."""

    def made(
        name: str, wrong: int, *, evaluation: int = 2, first_row: int = 0, seeds: int = 1,
        **sections: Any,
    ) -> SweepResults:  # fmt: skip
        values = {"val/accuracy": 0.5, "test/accuracy/shape": 1 - wrong / 300}
        values |= {"heldout/accuracy/tilt": 0.25}
        params = {} if "search" in sections else {"method.temperature": 0.5}
        trials = [trial_of(i, 2, values, params=params, seed=i) for i in range(seeds)]
        if params:
            worse = {"method.temperature": 0.1}
            trials.append(trial_of(seeds, 2, {"val/accuracy": 0.1}, params=worse))
        search = {"space": SPACE, "sampler": "grid", "repeats": seeds}
        raw = {"name": name, "data": DATA, "method": "mtcon", "search": search, **sections}
        spec, plan = parse_spec(raw), plan_with(evaluation=evaluation)
        results = results_of(spec, *trials, name=name, folder=tmp_path / name, plan=plan)
        for trial in trials[:seeds]:
            is_wrong = np.random.default_rng(trial.seed).permutation(300) < wrong
            path = results.predictions_of(trial)
            save_wrong(path, {("test", "shape"): is_wrong}, first_row=first_row)
        return results

    return made


def table(*pair: SweepResults) -> dict[str, list[str]]:
    """Returns the cells of each line by the text of its first cell."""
    cells = (line.split("  ") for line in side_by_side((pair[0], pair[1])))
    return {first: [text.strip() for text in rest if text.strip()] for first, *rest in cells}


def test_winners_scores_and_specs_stand_side_by_side(make: Make) -> None:
    fixed = {"search": {}, "method": {"name": "mtcon", "temperature": 0.3}}
    first = make("a", 100, tracking={"offline": True})
    found = table(first, make("b", 60, train={"epochs": 8}, **fixed))
    assert found["winner"] == ["trial-0000", "trial-0000"]
    assert found["configuration"] == ["temperature=0.5", "no searched fields"]
    assert found["val/accuracy"] == ["0.500", "0.500"]
    assert found["test tilt, held out"] == ["0.250", "0.250", "—"]
    one, other, gap = found["test shape"]
    assert (one[:6], other[:6], gap[:7]) == ("0.667 ", "0.800 ", "+0.133 ")
    assert gap.startswith("+0.133 [+0.0")
    assert gap.endswith("]¹")
    assert found["train.epochs"] == ["20", "8"]
    assert "tracking.offline" not in found
    assert "name" not in found


def test_repeats_count_as_in_the_report(make: Make) -> None:
    """Intervals cover the seeds of the winner's configuration."""
    pair = make("a", 100, seeds=3), make("b", 60, seeds=3)
    gaps = paired_differences(winners(pair))
    gap = some(gaps["test", "shape"])
    assert gap.over_seeds
    assert gap.low < 0.4 / 3 < gap.high
    assert gaps["heldout", "tilt"] is None
    assert "their specs differ in no field that may change a score" in table(*pair)


def test_other_items_have_no_difference(make: Make) -> None:
    *_, gap = table(make("a", 100), make("b", 60, first_row=1))["test shape"]
    assert gap == "—"


def test_only_the_specs_are_compared_after_other_probes(make: Make) -> None:
    pair = make("a", 100), make("b", 60, evaluation=1, train={"epochs": 8})
    first, *lines = side_by_side(pair)
    assert first.startswith("the scores of a and b cannot be compared: ")
    assert first.endswith("measured by other probes (evaluation 2 and 1)")
    assert [row.split() for row in lines[1:]] == [["field", "a", "b"], ["train.epochs", "20", "8"]]


def test_a_sweep_without_a_winner_has_empty_cells(make: Make) -> None:
    found = table(make("a", 100), replace(make("b", 60), trials=()))
    assert found["winner"] == ["trial-0000", "—"]
    assert found["configuration"] == ["temperature=0.5", "—"]
    assert found["val/accuracy"] == ["0.500", "—"]
    assert found["test shape"][1:] == ["—", "—"]
