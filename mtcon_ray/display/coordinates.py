"""The parallel coordinates of a sweep: a line per trial through its searched values and its value.

The page draws them as SVG, with places in pixels from the upper left corner.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.ticker import LogLocator, MaxNLocator

from mtcon_ray.display import presentation as show
from mtcon_ray.display.plotting import axis_scale, shortened, standing
from mtcon_ray.records.results import SweepResults

TOP, BOTTOM, SIDE, STEP = 40, 300, 76, 150


class Axis(NamedTuple):
    """A vertical axis at x, with the height and the text of each tick."""

    title: str
    x: int
    ticks: list[tuple[float, str]]


class Line(NamedTuple):
    """A trial's line. `strength` grows with the rank of its value, up to 1."""

    points: str
    strength: float
    standing: str
    text: str


class Coordinates(NamedTuple):
    """The axes of all searched fields and of the value, and the lines, the winner's last."""

    width: int
    axes: list[Axis]
    lines: list[Line]


def coordinates(results: SweepResults) -> Coordinates | None:
    """Returns the coordinates of the trials with a value, None with fewer than two fields."""
    space, winner, name = results.spec.search.space, results.winner, results.labels.objective
    valued = (trial for trial in results.trials if trial.value is not None)
    trials = sorted(valued, key=lambda t: (t is winner, t.value or 0.0))
    if len(space) < 2 or not trials:
        return None
    short = show.short_paths(space)
    columns = {short[path]: [t.params[path] for t in trials] for path in space}
    columns[name] = [trial.value for trial in trials]
    scaled = [_scaled(values) for values in columns.values()]
    axes = [
        Axis(shortened(title, 22), SIDE + STEP * place, ticks)
        for place, (title, (_, ticks)) in enumerate(zip(columns, scaled, strict=True))
    ]
    lines = []
    columns_of = (heights for heights, _ in scaled)
    for place, (trial, *heights) in enumerate(zip(trials, *columns_of, strict=True)):
        points = (f"{a.x},{y:.1f}" for a, y in zip(axes, heights, strict=True))
        text = f"{show.configuration_text(trial.params)}, {name} {show.accuracy_text(trial.value)}"
        look, strength = standing(trial, winner), (place + 1) / len(trials)
        lines.append(Line(" ".join(points), strength, look, f"{trial.name}: {text}"))
    return Coordinates(2 * SIDE + STEP * len(space), axes, lines)


def _scaled(values: Sequence[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """Returns the height of each value, and the height and the text of each tick."""
    scale = axis_scale(values)
    if scale == "categorical" or min(values) == max(values):
        texts = [show.value_text(value) for value in values]
        names = sorted(set(texts))
        at = {text: _height((i + 0.5) / len(names)) for i, text in enumerate(names)}
        return [at[text] for text in texts], [(at[text], shortened(text, 16)) for text in names]
    measure = math.log if scale == "log" else float
    low, high = min(values), max(values)

    def height(value: float) -> float:
        return _height((measure(value) - measure(low)) / (measure(high) - measure(low)))

    locator = LogLocator(subs=(1.0, 2.0, 5.0)) if scale == "log" else MaxNLocator(5)
    ticks = (float(tick) for tick in locator.tick_values(low, high) if low <= tick <= high)
    return [height(value) for value in values], [(height(tick), f"{tick:g}") for tick in ticks]


def _height(share: float) -> float:
    """Returns the height of a share of the axis, which is 0 at its lower end."""
    return BOTTOM - share * (BOTTOM - TOP)
