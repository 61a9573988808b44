"""The main figure of a sweep: validation score against a searched parameter."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from mtcon_ray import metrics
from mtcon_ray.presentation import score_word, value_text
from mtcon_ray.report import plotting
from mtcon_ray.report.ranking import deviation
from mtcon_ray.results import SweepResults, TrialResult
from mtcon_ray.search.space import Dimension
from mtcon_ray.spec import RunSpec
from mtcon_ray.status import Status

Reading = Callable[[TrialResult], tuple[float, float]]  # score and deviation, NaN if missing

FULL, LESS, FAILED, WINNER = "full budget", "stopped early or unfinished", "failed", "winner"
LOOKS: dict[str, dict[str, Any]] = {
    FULL: {"color": plotting.BLUE, "marker": "o"},
    LESS: {"color": plotting.GREY, "marker": "o", "markerfacecolor": "white"},
    FAILED: {"color": plotting.INK, "marker": "x"},
    WINNER: {"color": plotting.VERMILLION, "marker": "D", "markersize": 7},
}
BAR: dict[str, Any] = {"elinewidth": 1.1, "capsize": 2.5}
CROWDED_BAR: dict[str, Any] = {"elinewidth": 0.8, "capsize": 0, "alpha": 0.4}
CROWD = 30  # with more points in a panel, error bars are drawn faintly and without caps
# Labels of more early-stopped trials would cover the points.
MAX_EPOCH_NOTES = 12


@dataclass(frozen=True)
class Point:
    """One trial and its x coordinate; `standing` is a key of LOOKS."""

    x: float
    trial: TrialResult
    standing: str


def parameter_figure(results: SweepResults, path: str) -> bytes:
    """Validation score, mean and per task, against one searched parameter."""
    trials = [t for t in results.trials if t.probe_values or t.status == Status.FAILED]
    dimension = results.spec.search.space[path]
    values = [t.params[path] for t in trials]
    scale = axis_scale(dimension, values)
    names = _categories(dimension, values) if scale == "categorical" else []
    xs = _abreast([names.index(value_text(v)) for v in values]) if names else [*map(float, values)]
    standings = _standings(results, trials)
    points = [Point(*point) for point in zip(xs, trials, standings, strict=True)]
    shown = readings(results.spec, trials)
    with plotting.styled():
        figure, grid = plotting.panels(len(shown), height=2.75)
        for axes, (title, reading) in zip(grid, shown.items(), strict=True):
            axes.set_title(plotting.shortened(title, 22), loc="left")
            axes.set_ylabel(_unit(results.spec, title))
            axes.margins(x=0.07)
            axes.set_xlabel(
                plotting.shortened(path, 40) + (", log scale" if scale == "log" else "")
            )
            _draw_points(axes, points, reading)
            if not names and len(results.spec.search.space) == 1:
                _join_means(axes, points, reading)
            _set_axis(axes, scale, names, xs)
        _note_epochs(grid[0], points, next(iter(shown.values())))
        present = [standing for standing in LOOKS if standing in standings]
        handles = [Line2D([], [], linestyle="", label=s, **LOOKS[s]) for s in present]
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
        return plotting.png(figure)


def axis_scale(dimension: Dimension, values: Sequence[Any]) -> str:
    """Returns "log", "linear" or "categorical", after the searched range or the listed values.

    Listed numbers are on a log axis if they are positive and their median is closer to the
    geometric than to the arithmetic mean of the extremes.
    """
    if dimension.values is None:
        return "log" if dimension.loguniform else "linear"
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


def _unit(spec: RunSpec, title: str) -> str:
    """Returns the label of a panel's y axis."""
    of_task = title in spec.data.tasks
    word = metrics.title(spec.data.kind_of(title)) if of_task else score_word(spec.labels)
    return f"{word} (fraction)"


def readings(spec: RunSpec, trials: Sequence[TrialResult]) -> dict[str, Reading]:
    """Returns a reading by panel title: the mean over tasks, then each task that has a score.

    With a single task only that task's panel is returned, since the mean would equal it.
    """
    tasks = spec.data.tasks

    def mean(trial: TrialResult) -> tuple[float, float]:
        spread = deviation(trial, tasks)
        value = metrics.objective(trial.probe_values)
        return math.nan if value is None else value, math.nan if spread is None else spread

    def of(task: str) -> Reading:
        def reading(trial: TrialResult) -> tuple[float, float]:
            value, std = metrics.reading(trial.probe_values, "val", metrics.slug(task))
            return math.nan if value is None else value, math.nan if std is None else std

        return reading

    read = {task: of(task) for task in tasks}
    each = {k: of_k for k, of_k in read.items() if any(math.isfinite(of_k(t)[0]) for t in trials)}
    return each if each and len(tasks) == 1 else {"mean over tasks": mean, **each}


def _draw_points(axes: Axes, points: Sequence[Point], reading: Reading) -> None:
    for standing, look in LOOKS.items():
        chosen = [p for p in points if p.standing == standing]
        if standing == FAILED:
            foot = [0.03] * len(chosen)  # no value: drawn at the bottom, to show where trials fail
            on_foot = axes.get_xaxis_transform()
            axes.plot([p.x for p in chosen], foot, linestyle="", transform=on_foot, **look)
            continue
        read = [(p.x, *reading(p.trial)) for p in chosen]
        finite = [(x, y, 0.0 if math.isnan(std) else std) for x, y, std in read if math.isfinite(y)]
        if finite:
            x, y, bars = zip(*finite, strict=True)
            bar = CROWDED_BAR if len(points) > CROWD else BAR
            axes.errorbar(x, y, bars, fmt="none", ecolor=look["color"], **bar)
            axes.plot(x, y, linestyle="", zorder=3, **look)


def _join_means(axes: Axes, points: Sequence[Point], reading: Reading) -> None:
    """Draws a line through the mean of the full-budget trials at each value."""
    by_x: dict[float, list[float]] = {}
    for point in points:
        if point.trial.full_budget and math.isfinite(y := reading(point.trial)[0]):
            by_x.setdefault(point.x, []).append(y)
    line = [(x, fmean(ys)) for x, ys in sorted(by_x.items())]
    if len(line) > 1:
        axes.plot(*zip(*line, strict=True), color=plotting.SKY, linewidth=1.2, zorder=1)


def _note_epochs(axes: Axes, points: Sequence[Point], reading: Reading) -> None:
    """Writes the number of epochs above each hollow point, since it may explain a low score."""
    less = [p for p in points if p.standing == LESS]
    if len(less) > MAX_EPOCH_NOTES:
        return
    for point in less:
        value, std = reading(point.trial)
        axes.annotate(
            f"epoch {point.trial.last_epoch}",
            (point.x, value if math.isnan(std) else value + std),
            xytext=(0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color="#6A6A6A",
        )


def _set_axis(axes: Axes, scale: str, names: Sequence[str], xs: Sequence[float]) -> None:
    if scale == "log":
        plotting.log_axis(axes, xs)
    elif names:
        shown = [plotting.shortened(name, 18) for name in names]
        long = sum(map(len, shown)) > 36
        axes.set_xticks(range(len(names)), shown, rotation=30 if long else 0)
        axes.set_xlim(-0.5, len(names) - 0.5)
    elif all(x.is_integer() for x in xs):
        plotting.count_axis(axes)


def _abreast(places: Sequence[int]) -> list[float]:
    """Returns x coordinates on a categorical axis; points of one category stand side by side."""
    seen: dict[int, int] = {}
    xs = []
    for place in places:
        seen[place] = seen.get(place, 0) + 1
        xs.append(place + 0.5 * (seen[place] / (places.count(place) + 1) - 0.5))
    return xs


def _categories(dimension: Dimension, values: Sequence[Any]) -> list[str]:
    return list(dict.fromkeys(map(value_text, [*(dimension.values or ()), *values])))


def _standings(results: SweepResults, trials: Sequence[TrialResult]) -> list[str]:
    """Returns the key of LOOKS for each trial."""
    winner = results.winner

    def of(trial: TrialResult) -> str:
        if trial is winner:
            return WINNER
        if trial.status == Status.FAILED:
            return FAILED
        return FULL if trial.full_budget else LESS

    return [of(trial) for trial in trials]
