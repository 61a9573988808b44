"""The parallel coordinates of a sweep: a line per trial through its searched values and its value.

The page draws them as SVG, with places in pixels from the upper left corner.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import LogLocator, MaxNLocator

from mtcon_ray.display import presentation as show
from mtcon_ray.display.plotting import axis_scale, shortened, standing
from mtcon_ray.records.results import SweepResults

TOP, BOTTOM, SIDE, STEP, MOST = 40, 300, 76, 150, 1_000
# The height and the text of each tick of an axis.
Ticks = list[tuple[float, str]]
# The title of an axis, its x, and its ticks.
Axis = tuple[str, int, Ticks]
# The points of a trial's line, the trial's standing, and a text.
Line = tuple[str, str, str]


def coordinates(results: SweepResults) -> tuple[list[Axis], list[Line]] | None:
    """Returns an axis per searched field and one of the value, and the lines by rising value.

    Only the MOST best trials have lines. The winner's line is the last. Returns None with fewer
    than two fields, or without a value.
    """
    space, winner, name = results.spec.search.space, results.winner, results.labels.objective
    valued = (trial for trial in results.trials if trial.value is not None)
    trials = sorted(valued, key=lambda t: (t is winner, t.value or 0.0))[-MOST:]
    if len(space) < 2 or not trials:
        return None
    titles = [shortened(title, 22) for title in (*show.short_paths(space).values(), name)]
    columns = [[trial.params[path] for trial in trials] for path in space]
    columns.append([trial.value for trial in trials])
    heights, ticks = zip(*map(_scaled, columns), strict=True)
    xs = range(SIDE, SIDE + STEP * len(columns), STEP)
    lines = []
    for trial, *ys in zip(trials, *heights, strict=True):
        points = " ".join(f"{x},{y:.1f}" for x, y in zip(xs, ys, strict=True))
        text = f"{show.configuration_text(trial.params)}, {name} {show.accuracy_text(trial.value)}"
        lines.append((points, standing(trial, winner), f"{trial.name}: {text}"))
    return list(zip(titles, xs, ticks, strict=True)), lines


def _scaled(values: Sequence[Any]) -> tuple[list[float], Ticks]:
    """Returns the height of each value, and the ticks."""
    scale = axis_scale(values)
    if scale == "categorical" or min(values) == max(values):
        texts = [show.value_text(value) for value in values]
        names = sorted(set(texts))
        centres = np.linspace(BOTTOM, TOP, 2 * len(names) + 1)[1::2].tolist()
        at = dict(zip(names, centres, strict=True))
        return [at[text] for text in texts], [(y, shortened(text, 16)) for text, y in at.items()]
    ends = [min(values), max(values)]
    locator = LogLocator(subs=(1.0, 2.0, 5.0)) if scale == "log" else MaxNLocator(5)
    ticks = [tick for tick in locator.tick_values(*ends) if ends[0] <= tick <= ends[1]]
    measure = np.log if scale == "log" else np.array
    places = np.interp(measure([*values, *ticks]), measure(ends), (BOTTOM, TOP)).tolist()
    texts = [f"{tick:g}" for tick in ticks]
    return places[: len(values)], [*zip(places[len(values) :], texts, strict=True)]
