"""Figures of a report: scores of all trials, learning curves of the winner."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from mtcon_ray.base import metrics
from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import FAILED, FULL, LESS, STANDINGS, WINNER
from mtcon_ray.records.results import SweepResults, TrialResult

Points = list[tuple[int, float]]
Courses = dict[str, tuple[dict[str, Points], str]]

# A curve and, at its last point, the marker of its trial in the other figures.
CURVES: dict[str, dict[str, Any]] = {
    FULL: STANDINGS[FULL] | {"linestyle": "-", "linewidth": 1.3, "color": plotting.SKY},
    LESS: STANDINGS[LESS] | {"linestyle": "-", "linewidth": 1.0},
    FAILED: STANDINGS[FAILED] | {"linestyle": ":", "linewidth": 1.0},
    WINNER: STANDINGS[WINNER] | {"linestyle": "-", "linewidth": 2.4},
}


def epochs_figure(results: SweepResults) -> bytes:
    """Draws the objective of every trial by epoch, the winner on top. Returns a PNG."""
    winner, present = results.winner, set()
    faint = 0.5 if len(results.trials) > plotting.CROWD else 1.0
    with plotting.styled():
        figure, (axes,) = plotting.panels(1, height=3.9)
        for trial in sorted(results.trials, key=lambda t: t is winner):
            points = _points(trial, metrics.objective)
            kind = plotting.standing(trial, winner)
            if points:
                present.add(kind)
                axes.plot(
                    *zip(*points, strict=True),
                    alpha=1.0 if trial is winner else faint,
                    markevery=[len(points) - 1],
                    **CURVES[kind],
                )
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{results.recorded.labels.objective} (fraction)")
        plotting.count_axis(axes)
        plotting.legend(figure, {kind: CURVES[kind] for kind in CURVES if kind in present})
        return plotting.png(figure)


def course_figure(shown: Courses) -> bytes:
    """Draws a panel for each learning curve of a trial, at least one. Returns a PNG."""
    names = list(dict.fromkeys(name for lines, _ in shown.values() for name in lines))
    looks = {
        name: {**plotting.SERIES[i % len(plotting.SERIES)], "markersize": 3.5}
        for i, name in enumerate(names)
    }
    with plotting.styled():
        figure, grid = plotting.panels(len(shown), height=2.75)
        for axes, (title, (lines, unit)) in zip(grid, shown.items(), strict=True):
            axes.set_title(title, loc="left")
            axes.set_xlabel("epoch")
            axes.set_ylabel(unit)
            plotting.count_axis(axes)
            for name, points in lines.items():
                axes.plot(*zip(*points, strict=True), **looks[name])
        plotting.legend(figure, looks)
        return plotting.png(figure)


def _points(trial: TrialResult, read: Callable[[dict[str, float]], float | None]) -> Points:
    """Returns (epoch, value) pairs of what `read` finds in an epoch's metrics, if finite."""
    found = [(epoch, read(values)) for epoch, values in trial.reports]
    return [(epoch, v) for epoch, v in found if v is not None and math.isfinite(v)]


def courses(trial: TrialResult, tasks: tuple[str, ...]) -> Courses:
    """Returns learning curves by panel title: the line of each task, and the unit of the y axis.

    The panels are the validation score of each kind of task, the loss and, if they are learned,
    sigma and weight. Panels without values are omitted. A method without a loss per task has a
    single line for all tasks.
    """

    def series(name: str) -> Points:
        return _points(trial, lambda values: values.get(name))

    def of_tasks(name: Callable[[str], str]) -> dict[str, Points]:
        return {task: series(name(slug)) for task, slug in metrics.slugs(tasks).items()}

    def of_kind(kind: str) -> dict[str, Points]:
        return of_tasks(partial(metrics.score, kind, "val"))

    losses = of_tasks(metrics.loss)
    if not any(losses.values()):
        losses = {"all tasks": series(metrics.LOSS)}
    found = {
        "validation accuracy": (of_kind("classes"), "accuracy (fraction)"),
        "validation mAP": (of_kind("set"), "mAP (fraction)"),
        "validation R²": (of_kind("number"), "R² (fraction)"),
        "loss": (losses, "loss (nats per anchor)"),
        "sigma": (of_tasks(metrics.sigma), "sigma (no unit)"),
        "weight": (of_tasks(metrics.weight), "weight (no unit)"),
    }
    return {
        title: ({name: points for name, points in lines.items() if points}, unit)
        for title, (lines, unit) in found.items()
        if any(lines.values())
    }
