"""Axis scale and panels of the figure of a searched parameter."""

import dataclasses

import pytest

from mtcon_ray.base import metrics
from mtcon_ray.display.parameters import axis_scale, readings
from mtcon_ray.spec.space import Dimension, Value
from tests.display.conftest import MakeSweep


@pytest.mark.parametrize(
    ("kind", "values", "scale"),
    [
        ("loguniform", [0.1, 1.0], "log"),
        ("uniform", [0.1, 1.0], "linear"),
        ("int", [1, 100], "linear"),
        ("grid", [0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0], "log"),
        ("grid", [16, 32, 64, 128], "log"),
        ("grid", [25, 50, 100, 150, 200, 300], "linear"),
        ("grid", [0.0, 0.01, 0.1, 1.0], "linear"),
        ("choice", [10, 1000], "linear"),
        ("choice", ["learned", "equal"], "categorical"),
        ("choice", [None, 1.0, 2.0], "categorical"),
        ("choice", [True, False], "categorical"),
    ],
)
def test_scale_follows_the_dimension_or_its_values(
    kind: str, values: list[Value], scale: str
) -> None:
    """The scale is logarithmic for log ranges and for listed values evenly spaced in log."""
    assert axis_scale(Dimension.model_validate({kind: values}), values) == scale


@pytest.mark.parametrize("tasks", [["kind"], ["kind", "colour"]])
def test_a_task_has_a_panel_where_a_trial_has_its_score(sweep: MakeSweep, tasks: list[str]) -> None:
    """A single task has no extra panel for the mean; without task scores only the mean has one."""
    results = sweep(tasks=tasks)
    both = ["val/accuracy", *tasks]
    assert [*readings(results.recorded.labels, results.trials)] == (
        tasks if len(tasks) == 1 else both
    )
    alone = [
        dataclasses.replace(t, reports=((t.last_epoch, {metrics.MEAN_ACCURACY: 0.5}),))
        for t in results.trials
    ]
    assert [*readings(results.recorded.labels, alone)] == ["val/accuracy"]
