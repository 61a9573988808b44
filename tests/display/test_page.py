"""The page's words for a sweep whose objective is not the mean over tasks."""

import dataclasses

import pytest

from mtcon_ray.display import page
from mtcon_ray.spec.run_spec import with_values
from tests.display.built_page import built
from tests.display.conftest import MakeSweep
from tests.recorded import recorded


def test_an_objective_decides_and_is_named(
    sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial with the lower mean has the higher objective, the second task's score."""
    results = sweep(
        points=[{"method.temperature": 0.1}, {"method.temperature": 0.5}], tasks=["kind", "colour"]
    )
    spec = with_values(results.spec, {"search.objective": "colour"})
    trials = []
    for trial, value in zip(results.trials, (0.25, 0.75), strict=True):
        *before, (epoch, values) = trial.reports
        last = (epoch, {**values, "val/objective": value})
        trials.append(dataclasses.replace(trial, reports=(*before, last)))
    results = dataclasses.replace(results, spec=recorded(spec), trials=tuple(trials))
    assert results.winner is results.trials[1]
    assert results.winner.probe_values["val/accuracy"] < trials[0].probe_values["val/accuracy"]
    sentence, _ = page.headline(results)
    assert "won with val/objective 0.750 ±" in sentence
    assert "(accuracy of colour), 0.500" in sentence
    assert ("Objective", "accuracy of colour") in page.setup(results)
    monkeypatch.setattr("mtcon_ray.display.build.draw", lambda results: [])
    words = "A trial's value is val/objective (accuracy of colour), measured by a short"
    assert words in built(results).text


def test_epochs_that_a_plateau_saved_are_counted(sweep: MakeSweep) -> None:
    results = sweep(points=[{"method.temperature": 0.1}, {"method.temperature": 0.5}])
    first, second = results.trials
    short = dataclasses.replace(second, reports=second.reports[:12])
    results = dataclasses.replace(results, trials=(first, short))
    facts = {name: value for name, value, _ in page.facts(results)}
    assert (facts["Epochs trained"], facts["Epochs saved"]) == ("32", "8")
