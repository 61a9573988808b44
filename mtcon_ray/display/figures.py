"""Figures of a report: values of all trials against searched fields, and by epoch."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mtcon_ray.base import metrics
from mtcon_ray.base.status import Status
from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import FAILED, FULL, LESS, STANDINGS, WINNER
from mtcon_ray.display.presentation import value_text
from mtcon_ray.display.ranking import deviation
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.space import Dimension

BAR: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2.5}
# A curve and, at its last point, the marker of its trial in the other figure.
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
            found = [(epoch, metrics.objective(values)) for epoch, values in trial.reports]
            points = [(epoch, v) for epoch, v in found if v is not None and math.isfinite(v)]
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
        axes.set_ylabel(f"{results.labels.objective} (fraction)")
        plotting.count_axis(axes)
        plotting.legend(figure, {kind: CURVES[kind] for kind in CURVES if kind in present})
        return plotting.png(figure)


def parameters_figure(results: SweepResults) -> bytes:
    """Draws the trials' values against each searched field, at least one. Returns a PNG."""
    labels, space = results.labels, results.spec.search.space
    trials = [t for t in results.trials if t.probe_values or t.status == Status.FAILED]
    standings = [plotting.standing(trial, results.winner) for trial in trials]
    score_T2 = np.array([(t.value, deviation(t, labels)) for t in trials], dtype=float)
    with plotting.styled():
        figure, grid = plotting.panels(len(space), height=2.75)
        for axes, (path, dimension) in zip(grid, space.items(), strict=True):
            axes.set_ylabel(f"{labels.objective} (fraction)")
            axes.margins(x=0.07)
            scale = axis_scale(dimension, values := [t.params[path] for t in trials])
            name = plotting.shortened(path, 40)
            axes.set_xlabel(name + (", log scale" if scale == "log" else ""))
            names: list[str] = []
            if scale == "categorical":
                names = list(dict.fromkeys(map(value_text, [*(dimension.values or ()), *values])))
                xs = _abreast([names.index(value_text(v)) for v in values])
            else:
                xs = np.array(values, dtype=float)
            _draw_points(axes, xs, score_T2, np.array(standings))
            # Last: matplotlib warns of limits that are set for a single point without data.
            _set_axis(axes, scale, names, xs)
        plotting.legend(figure, {s: look for s, look in STANDINGS.items() if s in standings})
        return plotting.png(figure)


def axis_scale(dimension: Dimension, values: Sequence[Any]) -> str:
    """Returns "log", "linear" or "categorical", after the searched range or the listed values.

    Positive numbers in a list are on a log axis if the largest is ten times the smallest or more.
    """
    if dimension.values is None:
        return "log" if dimension.is_log else "linear"
    listed = [*dimension.values, *values]
    # bool is a subclass of int, but true and false are categories.
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in listed):
        return "categorical"
    return "log" if 0 < 10 * min(listed) <= max(listed) else "linear"


def _draw_points(axes: Axes, xs: np.ndarray, score_T2: np.ndarray, standings: np.ndarray) -> None:
    for standing, look in STANDINGS.items():
        chosen = standings == standing
        if standing == FAILED:
            # No value: drawn at the bottom, to show where trials fail.
            foot = axes.get_xaxis_transform()
            axes.plot(xs[chosen], np.full(chosen.sum(), 0.03), transform=foot, **look)
            continue
        chosen &= np.isfinite(score_T2[:, 0])
        if chosen.any():
            x, (y, std) = xs[chosen], score_T2[chosen].T
            axes.errorbar(x, y, np.nan_to_num(std), fmt="none", ecolor=look["color"], **BAR)
            axes.plot(x, y, zorder=3, **look)


def _set_axis(axes: Axes, scale: str, names: Sequence[str], xs: np.ndarray) -> None:
    if names:
        shown = [plotting.shortened(name, 18) for name in names]
        long = sum(map(len, shown)) > 36
        axes.set_xticks(range(len(names)), shown, rotation=30 if long else 0)
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif scale == "log":
        plotting.log_axis(axes, xs.tolist())
    elif (xs == xs.round()).all():
        plotting.count_axis(axes)


def _abreast(places: list[int]) -> np.ndarray:
    """Returns x coordinates on a categorical axis, with points of one category side by side."""
    xs = [
        place + 0.5 * (places[: i + 1].count(place) / (places.count(place) + 1) - 0.5)
        for i, place in enumerate(places)
    ]
    return np.array(xs)
