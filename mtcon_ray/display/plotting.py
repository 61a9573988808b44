"""Shared style of all figures: colour-blind safe palette, axis ticks, PNG output."""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any

import matplotlib
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from mtcon_ray.display.presentation import abridged
from mtcon_ray.records.results import TrialResult

# The palette of Okabe and Ito 2008 without its yellow, which is hard to see on white.
BLUE, VERMILLION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
INK, GREY = "#222222", "#9A9A9A"
# The standing of a trial, and how its point is drawn.
FULL, LESS, WINNER = "full budget", "less than the full budget", "winner"
STANDINGS: dict[str, dict[str, Any]] = {
    FULL: {"color": SKY, "marker": "o"},
    LESS: {"color": GREY, "marker": "o", "markerfacecolor": "white"},
    WINNER: {"color": VERMILLION, "marker": "D", "zorder": 4},
}
WIDTH = 9.2
DPI = 144
MAX_NAME = 28
# A range of values that is wider has a logarithmic axis.
LOG_RATIO = 10

STYLE: Any = {
    "font.size": 10, "text.color": INK,
    "text.parse_math": False,  # a label column may be called "price ($)"
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.labelcolor": INK,
    "axes.edgecolor": "#555555", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "axes.ymargin": 0.09,
    "grid.color": "#E6E6E6", "grid.linewidth": 0.7, "legend.frameon": False,
    "xtick.labelsize": 9, "ytick.labelsize": 9, "xtick.color": "#444444", "ytick.color": "#444444",
    "lines.markersize": 5, "lines.linewidth": 1.6,
}  # fmt: skip


@contextmanager
def styled() -> Iterator[None]:
    """Sets the style. Must enclose both the creation and the saving of a figure."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # matplotlib's fonts lack some scripts. The page's text has every name in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def panels(count: int, *, height: float, columns: int | None = None) -> tuple[Figure, list[Axes]]:
    """Returns a figure with `count` panels of equal size, `height` inches each."""
    across = min(count, columns or (2 if count in (2, 4) else 3))
    down = ceil(count / across)
    layout = ConstrainedLayoutEngine(wspace=0.05, hspace=0.05)
    figure = Figure(figsize=(WIDTH, height * down), layout=layout)
    grid = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for unused in grid[count:]:
        unused.remove()
    return figure, grid[:count]


def legend(figure: Figure, looks: Mapping[str, dict[str, Any]]) -> None:
    """Adds a legend above the panels, with an entry per name in its look."""
    handles = [Line2D([], [], label=shortened(name), **look) for name, look in looks.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=4)


def png(figure: Figure) -> bytes:
    """Returns PNG bytes without matplotlib's version: equal figures give equal bytes."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI, metadata={"Software": None})
    return drawn.getvalue()


def shortened(text: str, limit: int = MAX_NAME) -> str:
    """Returns the text on one line, with "…" for the middle of a text longer than `limit`.

    >>> shortened("a rather long name", 9)
    'a ra…name'
    """
    return abridged(" ".join(text.split()), limit)


def standing(trial: TrialResult, winner: TrialResult | None) -> str:
    """Returns the trial's key of STANDINGS."""
    if trial is winner:
        return WINNER
    return FULL if trial.full_budget else LESS


def count_axis(axes: Axes) -> None:
    """Sets ticks of the x axis at round whole numbers."""
    locator = ticker.MaxNLocator(8, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1)
    axes.xaxis.set_major_locator(locator)


def log_axis(axes: Axes) -> None:
    """Sets a logarithmic x axis with ticks at 1, 2 and 5 of each decade."""
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


def axis_scale(values: Sequence[Any]) -> str:
    """Returns "log" for a wide range of positive numbers, "linear" for others, or "categorical"."""
    # bool is a subclass of int, but true and false are categories.
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
        return "categorical"
    return "log" if 0 < LOG_RATIO * min(values) <= max(values) else "linear"
