"""The page's words for other objectives, its intervals, and the axes of its figures."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from mtcon_ray.display import page
from mtcon_ray.display.build import draw
from mtcon_ray.display.plotting import axis_scale
from mtcon_ray.display.ranking import margin
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.spec.space import Value
from tests.display.built_page import built
from tests.display.conftest import MakeSweep
from tests.recorded import recorded, save_wrong
from tests.some import some

POINTS = ({"method.temperature": 0.1}, {"method.temperature": 0.5})
LEAD = r"\+0\.200 \[\+0\.1\d\d, \+0\.2\d\d\]"
MEAN = r"0\.600 \[0\.5\d\d, 0\.6\d\d\]"


@pytest.mark.parametrize(
    ("objective", "title", "deviation"),
    [
        ("colour", "colour", " ± 0.020"),
        ("head/map_at_r/colour", "head/map_at_r/colour", ""),
        ({"knn/kind": 1, "colour": 1}, "weighted mean: 50% knn/kind, 50% colour", ""),
    ],
)
def test_an_objective_decides_and_is_named(
    sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch, objective: Any, title: str, deviation: str
) -> None:
    """The trial with the lower mean has the higher objective. Only probes have deviations."""
    results = sweep(points=POINTS, tasks=["kind", "colour"])
    spec = with_values(results.spec, {"search.objective": objective})
    trials = []
    for trial, value in zip(results.trials, (0.25, 0.75), strict=True):
        *before, (epoch, values) = trial.reports
        last = (epoch, {**values, "val/objective": value})
        trials.append(dataclasses.replace(trial, reports=(*before, last)))
    results = dataclasses.replace(results, spec=recorded(spec), trials=tuple(trials))
    assert results.winner is results.trials[1]
    assert results.winner.probe_values["val/accuracy"] < trials[0].probe_values["val/accuracy"]
    sentence, _ = page.headline(results)
    assert f"won with val/objective 0.750{deviation} ({title}" in sentence
    assert "), 0.500" in sentence
    assert ("Bars: ±" in next(draw(results))[1]) == bool(deviation)
    monkeypatch.setattr("mtcon_ray.display.build.draw", lambda results: [])
    assert f"A trial's value is val/objective ({title}" in built(results).text


def test_a_winner_below_the_runner_up_has_a_distance(sweep: MakeSweep) -> None:
    below = some(margin(results := sweep(points=POINTS)))._replace(gap=-0.1, deviations=-1.0)
    with patch.object(page, "margin", return_value=below):
        assert "0.100 (1.0 bootstrap deviations) below the" in page.headline(results)[0]


def test_commands_have_the_sweep_and_its_root_quoted_for_a_shell(sweep: MakeSweep) -> None:
    folder = Path("/my lab/sweeps/shoes-1")
    results = dataclasses.replace(sweep(points=POINTS), folder=folder, name="shoes-1")
    (_, whole), (_, alone) = page.commands(results)
    assert shlex.split(whole) == ["mtcon-ray", "sweep", f"{folder}/spec.yaml"]
    assert shlex.split(alone) == ["mtcon-ray", "train", "--from", "shoes-1", "--root", "/my lab"]


@pytest.mark.parametrize(("repeats", "mark"), [(1, "¹"), (3, "")])
def test_intervals_need_stored_predictions(sweep: MakeSweep, repeats: int, mark: str) -> None:
    """600 of 1,000 items are right for the winner's trials, 400 for the others."""
    results = sweep(points=POINTS, repeats=repeats)
    for trial in results.trials:
        share = 600 if trial.params == results.required_winner().params else 400
        wrong = np.random.default_rng(trial.number).permutation(1000) >= share
        save_wrong(results.predictions_of(trial), {("heldout", "brand"): wrong})
    category, *_, brand = page.accuracies(results).rows
    assert re.fullmatch(LEAD + mark, brand[-1])
    assert category[-1] == "—"
    if repeats > 1:
        assert re.fullmatch(MEAN, brand[-2])
        assert category[-2] == "—"
    results.predictions_of(results.trials[-1]).unlink()
    assert "lead over the runner-up" not in page.accuracies(results).header


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0], "log"), ([16, 160], "log"),
        ([16, 32, 64, 128], "linear"), ([0.0, 0.01, 0.1, 1.0], "linear"),
        (["learned", "equal"], "categorical"), ([None, 1.0, 2.0], "categorical"),
        ([True, False], "categorical"),
    ],
)  # fmt: skip
def test_wide_ranges_of_positive_numbers_are_logarithmic(values: list[Value], scale: str) -> None:
    assert axis_scale(values) == scale
