"""Ranking of a sweep: the winner and its lead."""

import dataclasses
import math

import pytest

from mtcon_ray.base import metrics
from mtcon_ray.display.ranking import Margin, deviation, margin, verdict
from mtcon_ray.records.results import SweepResults, TrialResult
from tests.display.conftest import MakeSweep
from tests.some import some

POINTS = ({"method.temperature": 0.1}, {"method.temperature": 0.2}, {"method.temperature": 0.5})


def with_values(results: SweepResults, values: list[float], std: float) -> SweepResults:
    """Returns the sweep with these values of its trials' only task, each with deviation `std`."""

    def trial(old: TrialResult, value: float) -> TrialResult:
        scores = {metrics.MEAN_ACCURACY: value, metrics.score_std("classes", "val", "kind"): std}
        return dataclasses.replace(old, reports=((old.last_epoch, scores),))

    trials = tuple(trial(t, v) for t, v in zip(results.trials, values, strict=True))
    return dataclasses.replace(results, trials=trials)


def lead(results: SweepResults, *values: float) -> Margin:
    """Returns the winner's lead if the trials have these values, each with deviation 0.01."""
    return some(margin(with_values(results, [*values], 0.01)))


def test_deviation_of_a_value_by_hand(sweep: MakeSweep) -> None:
    """Two tasks with deviations 0.03 and 0.04: hypot is 0.05, and half of it is the mean's.

    With weights 3 and 1 it is hypot(0.0225, 0.01); that of one task is the task's own.
    """
    trial = sweep(points=POINTS[:1], tasks=["a", "b"]).trials[0]
    values = {
        metrics.MEAN_ACCURACY: 0.5,
        metrics.score_std("classes", "val", "a"): 0.03,
        metrics.score_std("classes", "val", "b"): 0.04,
    }
    trial = dataclasses.replace(trial, reports=((20, values),))

    def labels(tasks: str, weights: dict[str, float] | None = None) -> metrics.Labels:
        return metrics.Labels(tuple(tasks), (), dict.fromkeys(tasks, "classes"), weights)

    assert deviation(trial, labels("ab")) == pytest.approx(0.025)
    assert math.isnan(deviation(trial, labels("abc")))
    weighted = deviation(trial, labels("ab", {"a": 3, "b": 1}))
    assert weighted == pytest.approx(math.hypot(0.0225, 0.01))
    assert deviation(trial, labels("abc", {"b": 1})) == pytest.approx(0.04)


def test_no_deviation_leaves_the_lead_uncounted(sweep: MakeSweep) -> None:
    """A lead must not be divided by missing or zero deviations."""
    results = sweep(points=POINTS, tasks=["kind"])
    for bare in (sweep(points=POINTS, with_std=False), with_values(results, [0.6, 0.7, 0.8], 0.0)):
        found = some(margin(bare))
        assert found.deviations is None
        assert "nothing can be said" in verdict(found)


@pytest.mark.parametrize(
    ("second", "words"),
    [(0.695, "cannot tell"), (0.672, "cannot tell"), (0.671, "A lead"), (0.6, "A lead")],
)
def test_words_follow_the_lead(sweep: MakeSweep, second: float, words: str) -> None:
    """With deviations of 0.01 the leads are 0.35, 1.98, 2.05 and 7 deviations of the difference."""
    found = lead(sweep(points=POINTS, tasks=["kind"]), 0.1, 0.7, second)
    assert verdict(found).startswith("This measurement cannot tell") == (words == "cannot tell")
    assert words in verdict(found)
    assert "best of 3 configurations" in verdict(found)


def test_seeds_of_a_configuration_are_one_competitor(sweep: MakeSweep) -> None:
    """The best single seed loses to the better mean; the winner's other seed is no runner-up."""
    made = sweep(points=POINTS[:2], tasks=["kind"], repeats=2)
    results = with_values(made, [0.8, 0.6, 0.75, 0.73], 0.01)
    first, second = results.configurations()
    assert first.params == {"method.temperature": 0.2}
    assert (first.value, second.value) == pytest.approx((0.74, 0.7))
    assert first.spread == pytest.approx(0.02 / math.sqrt(2))
    found = some(margin(results))
    assert found.runner_up == second
    assert found.gap == pytest.approx(0.04)


def test_survivor_of_early_stopping_comes_after_complete_configurations(sweep: MakeSweep) -> None:
    """A mean over the remaining seeds is too optimistic, and the verdict says so."""
    few = sweep(points=POINTS[:2], tasks=["kind"], repeats=2, statuses={1: "FAILED"})
    found = lead(few, 0.8, 0.6, 0.75, 0.73)
    assert found.gap < 0
    assert "flatters" in verdict(found)
