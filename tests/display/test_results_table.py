"""Leaderboard, winner and accuracies as lines of text."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

from mtcon_ray.base.status import Status
from mtcon_ray.display.results_table import leaderboard_lines, winner_lines, winner_warnings
from mtcon_ray.spec.run_spec import RunSpec, load_spec, parse_spec
from tests.pages import REPOSITORY
from tests.recorded import plan_with, results_of, trial_of


def spec_of(tasks: list[str], held_out: Sequence[str] = (), **sections: Any) -> RunSpec:
    data = {"kind": "synthetic", "tasks": tasks, "held_out": [*held_out]}
    return parse_spec({"name": "mixed", "data": data, **sections})


def test_a_set_and_classes_stand_with_their_own_scores() -> None:
    spec = spec_of(["attributes", "shape"], ["tilt"], evaluate={"neighbours": 7})
    values = {
        "val/score": 0.5, "test/map/attributes": 0.61, "test/map_std/attributes": 0.02,
        "test/accuracy/shape": 0.7, "test/knn/shape": 0.65, "heldout/accuracy/tilt": 0.25,
    }  # fmt: skip
    majority = {"attributes": 0.3, "shape": 0.7}
    plan = plan_with(classes={"attributes": 8, "shape": 5}, majority=majority)
    _, head, *rows, _ = winner_lines(results_of(spec, trial_of(0, 3, values), plan=plan))
    assert head.split()[-2:] == ["accuracy", "7-NN"]
    assert [line.split() for line in rows] == [
        ["test", "attributes", "(mAP)", "8", "labels", "0.300", "0.610", "±", "0.020", "—"],
        ["test", "shape", "5", "0.700", "0.700", "0.650"],
        ["held", "out", "tilt", "—", "—", "0.250", "—"],
    ]


@pytest.mark.parametrize(("gradient", "shown"), [(3.4e-4, "3e-04"), (0.02, "2e-02"), (1e-4, None)])
def test_probes_that_have_not_converged_are_warned_of(gradient: float, shown: str | None) -> None:
    values = {"val/accuracy": 0.6, "test/accuracy/shape": 0.7, "probe/gradient": gradient}
    results = results_of(spec_of(["shape"]), trial_of(0, 3, values))
    warning = f"the probes have not converged (gradient {shown} of its start); "
    told = [warning + "accuracies may be too low"] if shown else []
    assert winner_warnings(results) == told
    assert list(winner_lines(results))[3:-1] == [f"  warning: {text}" for text in told]


def test_a_score_of_several_kinds_is_explained_below_the_table_and_by_the_winner() -> None:
    tasks, trial = ["attributes", "shape"], trial_of(0, 3, {"val/score": 0.5})
    results = results_of(spec_of(tasks), trial)
    lines = leaderboard_lines(results)
    assert "val/score" in lines[0].split()
    assert lines[-1] == "val/score: mean of accuracy, mAP"
    winner = next(winner_lines(results))
    assert winner.endswith("val/score 0.500 (mean of accuracy, mAP), network of epoch 3 of 3")
    values = {"val/score": 0.5, "val/objective": 0.25}
    spec = spec_of(tasks, search={"objective": "shape"})
    results = results_of(spec, replace(trial, reports=((3, values),)))
    assert leaderboard_lines(results)[-1] == "val/objective: shape"
    assert "val/objective 0.250 (shape), network" in next(winner_lines(results))


def test_the_readmes_leaderboard_is_what_a_sweep_prints() -> None:
    """The table is printed from the numbers of the README's two best trials."""
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    row = r"^\d  trial-(\d{4})  temperature=(\S+) +8/8 ((?: +0\.\d{3}){4}) +finished$"
    shown = re.findall(row, readme, re.M)
    assert len(shown) == 2
    names = ["val/accuracy", *(f"test/accuracy/{task}" for task in ("shape", "colour", "texture"))]
    rows = [*shown, ("0007", "0.05", "0.5")]
    trials = tuple(
        trial_of(
            int(number), 8, dict(zip(names, map(float, scores.split()), strict=False)),
            params={"method.temperature": float(temperature)},
        )
        for number, temperature, scores in rows
    )  # fmt: skip
    spec = load_spec(REPOSITORY / "experiments" / "temperature.yaml")
    assert "\n".join(leaderboard_lines(results_of(spec, *trials))[:3]) in readme


@pytest.mark.parametrize("columns", [80, 150])
def test_a_narrow_leaderboard_shows_everything(columns: int) -> None:
    """Texts wrap, also where their characters are wide. Values stay on one line."""
    params = {"method.temperature": 0.07336, "train.lr": 0.02536, "data.tasks": ["色", "素材と形"]}
    values = {"val/accuracy": 0.3, "test/accuracy/shape": 0.1}
    reason = "画像: [b]loss[/b] is nan at step 312"
    ends = {Status.FINISHED: None, Status.PRUNED: None, Status.FAILED: reason}
    trials = tuple(
        trial_of(number, 12, values, params=params, status=status, reason=why)
        for number, (status, why) in enumerate(ends.items())
    )
    results = results_of(spec_of(["shape"]), *trials)
    lines = leaderboard_lines(results, columns=columns)
    assert max(map(cell_len, lines)) <= max(columns, 90)
    text = "\n".join(lines)
    for word in ("0.300", "0.100", "temperature=0.07336", "lr=0.02536", "素材と形"):
        assert text.count(word) == 3, word
    for word in ("val/accuracy", "[b]loss[/b]", "312"):
        assert text.count(word) == 1, word
    assert (len(lines) == 4) == (columns >= 150)
    assert leaderboard_lines(results, columns=None) == leaderboard_lines(results, columns=200)


@pytest.mark.parametrize(
    ("best", "tried", "words"),
    [
        (5, (0.1, 0.7, 5), "is the highest of 3 tried values, 5; higher values may be better"),
        (0.1, (0.1, 0.7, 5), "is the lowest of 3 tried values, 0.1; lower values may be better"),
        (0.7, (0.1, 0.7, 5), None),
        (5, (0.1, 5), None),
        ("learned", ("learned", "equal", "fixed"), None),
    ],
)
def test_winners_at_an_end_are_doubted(best: Any, tried: Sequence[Any], words: str | None) -> None:
    path = "method.temperature"
    trials = [
        trial_of(number, 8, {"val/accuracy": 0.9 if value == best else 0.5}, params={path: value})
        for number, value in enumerate(tried)
    ]
    lines = winner_lines(results_of(spec_of(["shape"]), *trials))
    warning = [line for line in lines if "warning" in line]
    assert warning == ([f"  warning: the winner's {path} {words}"] if words else [])
