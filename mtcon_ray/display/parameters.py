"""The main figure of a sweep: validation score against a searched parameter."""

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from mtcon_ray.base import metrics
from mtcon_ray.base.status import Status
from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import FAILED, STANDINGS
from mtcon_ray.display.presentation import value_text
from mtcon_ray.display.ranking import deviation
from mtcon_ray.records.results import SweepResults, TrialResult
from mtcon_ray.spec.space import Dimension

BAR: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2.5}


def parameter_figure(results: SweepResults, path: str) -> bytes:
    """Draws the validation score, of the objective and per task, against a searched parameter."""
    trials = [t for t in results.trials if t.probe_values or t.status == Status.FAILED]
    space, labels = results.spec.search.space, results.labels
    values = [t.params[path] for t in trials]
    scale = axis_scale(space[path], values)
    names: list[str] = []
    if scale == "categorical":
        names = list(dict.fromkeys(map(value_text, [*(space[path].values or ()), *values])))
        xs = _abreast([names.index(value_text(v)) for v in values])
    else:
        xs = np.array(values, dtype=float)
    standings = [plotting.standing(trial, results.winner) for trial in trials]
    shown = readings(labels, trials)
    with plotting.styled():
        figure, grid = plotting.panels(len(shown), height=2.75)
        for axes, (title, score_T2) in zip(grid, shown.items(), strict=True):
            axes.set_title(plotting.shortened(title, 22), loc="left")
            unit = metrics.TITLES[labels.kinds[title]] if title in labels.tasks else "value"
            axes.set_ylabel(f"{unit} (fraction)")
            axes.margins(x=0.07)
            axes.set_xlabel(
                plotting.shortened(path, 40) + (", log scale" if scale == "log" else "")
            )
            _draw_points(axes, xs, score_T2, np.array(standings))
            _set_axis(axes, scale, names, xs)
        plotting.legend(figure, {s: look for s, look in STANDINGS.items() if s in standings})
        return plotting.png(figure)


def axis_scale(dimension: Dimension, values: Sequence[Any]) -> str:
    """Returns "log", "linear" or "categorical", after the searched range or the listed values.

    Listed numbers are on a log axis if they are positive and their median is closer to the
    geometric than to the arithmetic mean of the extremes.
    """
    if dimension.values is None:
        return "log" if dimension.is_log else "linear"
    listed = [*dimension.values, *values]
    # bool is a subclass of int, but true and false are categories.
    numbers = {v for v in listed if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(numbers) < len(set(map(repr, listed))):
        return "categorical"
    if len(numbers) < 3 or min(numbers) <= 0:
        return "linear"
    low, middle, high = min(numbers), median(numbers), max(numbers)
    nearer_geometric = abs(middle - math.sqrt(low * high)) < abs(middle - (low + high) / 2)
    return "log" if nearer_geometric else "linear"


def readings(labels: metrics.Labels, trials: Sequence[TrialResult]) -> dict[str, np.ndarray]:
    """Returns score and deviation of T trials by panel title: float64 [T, 2], NaN if missing.

    The panels are the trials' value, then each task with a score. With a single task only the
    task's panel is returned, since the value would equal its score.
    """
    read: dict[str, list[tuple[float | None, float | None]]] = {
        labels.objective: [(t.value, deviation(t, labels)) for t in trials]
    }
    for task, label in metrics.slugs(labels.tasks).items():
        of_task = [metrics.reading(t.probe_values, "val", label) for t in trials]
        if any(value is not None and math.isfinite(value) for value, _ in of_task):
            read[task] = [*of_task]
    if len(labels.tasks) == 1 and len(read) > 1:
        del read[labels.objective]
    return {title: np.array(found, dtype=float) for title, found in read.items()}


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
    if scale == "log":
        plotting.log_axis(axes, xs.tolist())
    elif names:
        shown = [plotting.shortened(name, 18) for name in names]
        long = sum(map(len, shown)) > 36
        axes.set_xticks(range(len(names)), shown, rotation=30 if long else 0)
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif (xs == xs.round()).all():
        plotting.count_axis(axes)


def _abreast(places: list[int]) -> np.ndarray:
    """Returns x coordinates on a categorical axis, with points of one category side by side."""
    xs = [
        place + 0.5 * (places[: i + 1].count(place) / (places.count(place) + 1) - 0.5)
        for i, place in enumerate(places)
    ]
    return np.array(xs)
