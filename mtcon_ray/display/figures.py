"""Figures of a report: values of all trials against searched fields, and by epoch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import STANDINGS
from mtcon_ray.display.presentation import value_text
from mtcon_ray.display.ranking import deviation
from mtcon_ray.records.results import SweepResults, objective_values

# A range of values that is wider has a logarithmic axis.
LOG_RATIO = 10


def epochs_figure(results: SweepResults) -> bytes:
    """Draws the objective of every trial by epoch, the winner on top. Returns a PNG."""
    winner, present = results.winner, set()
    with plotting.styled():
        figure, (axes,) = plotting.panels(1, height=3.9)
        for trial in sorted(results.trials, key=lambda t: t is winner):
            values = objective_values(trial.reports)
            points = {epoch: v for epoch, v in values.items() if math.isfinite(v)}
            kind = plotting.standing(trial, winner)
            if points:
                present.add(kind)
                width = 2.4 if trial is winner else 1.3
                look = STANDINGS[kind] | {"marker": "", "linewidth": width}
                axes.plot([*points], [*points.values()], **look)
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{results.labels.objective} (fraction)")
        plotting.count_axis(axes)
        plotting.legend(figure, {kind: STANDINGS[kind] for kind in STANDINGS if kind in present})
        return plotting.png(figure)


def parameters_figure(results: SweepResults) -> bytes:
    """Draws the trials' values against each searched field, at least one. Returns a PNG."""
    labels, space = results.labels, results.spec.search.space
    trials = [t for t in results.trials if t.value is not None and math.isfinite(t.value)]
    winner = results.winner
    by_standing = {k: [t for t in trials if plotting.standing(t, winner) == k] for k in STANDINGS}
    with plotting.styled():
        figure, grid = plotting.panels(len(space), height=2.75)
        for axes, path in zip(grid, space, strict=True):
            axes.set_ylabel(f"{labels.objective} (fraction)")
            axes.margins(x=0.07)
            values = [t.params[path] for t in trials]
            scale = axis_scale(values)
            shown_path = plotting.shortened(path, 40)
            axes.set_xlabel(f"{shown_path}, log scale" if scale == "log" else shown_path)
            for kind, shown in by_standing.items():
                xs = [t.params[path] for t in shown]
                if scale == "categorical":
                    xs = [plotting.shortened(value_text(x), 18) for x in xs]
                stds = [deviation(t, labels) for t in shown]
                ys = np.array([t.value for t in shown], dtype=float)
                axes.errorbar(xs, ys, stds, linestyle="", **STANDINGS[kind])
            if scale == "log":
                plotting.log_axis(axes)
            elif scale == "linear" and all(value == round(value) for value in values):
                plotting.count_axis(axes)
        plotting.legend(figure, {k: STANDINGS[k] for k, shown in by_standing.items() if shown})
        return plotting.png(figure)


def axis_scale(values: Sequence[Any]) -> str:
    """Returns "log" for a wide range of positive numbers, "linear" for others, or "categorical"."""
    # bool is a subclass of int, but true and false are categories.
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return "categorical"
    return "log" if 0 < LOG_RATIO * min(values) <= max(values) else "linear"
