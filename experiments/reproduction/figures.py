"""Drawing of the papers' figures: curves with bands, points in the plane, histograms.

All styles of a figure also differ in line, marker or hatching, and stay distinguishable in grey.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION
from mtcon_ray.evaluation.intervals import Interval

# Styles of curves.
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": VERMILLION, "linestyle": "--", "marker": "s"},
    {"color": GREEN, "linestyle": "-.", "marker": "^"},
    {"color": INK, "linestyle": (0, (1, 1)), "marker": "D"},
    {"color": PURPLE, "linestyle": (0, (5, 1, 1, 1)), "marker": "v"},
)
# Styles of references, which are thinner. A panel may have several references.
REFERENCES: tuple[dict[str, Any], ...] = tuple(
    {"color": INK, "linewidth": 1.2, "markerfacecolor": "white", **look}
    for look in (
        {"linestyle": ":"},
        {"linestyle": ":", "marker": "o"},
        {"linestyle": "--"},
        {"linestyle": "--", "marker": "x"},
    )
)
# Styles of classes, each with its own marker. Dense small markers merge. Therefore the first four,
# for the most frequent classes, also differ in grey.
CLASSES: tuple[dict[str, Any], ...] = (
    {"color": INK, "marker": "o"},
    {"color": ORANGE, "marker": "s"},
    {"color": BLUE, "marker": "^"},
    {"color": "#A5D8F0", "marker": "D"},
    {"color": VERMILLION, "marker": "x"},
    {"color": GREEN, "marker": "v"},
    {"color": PURPLE, "marker": "P"},
    {"color": "#8C564B", "marker": "*"},
)
BARS: tuple[dict[str, Any], ...] = (
    {"facecolor": SKY, "edgecolor": BLUE, "alpha": 0.75},
    {"facecolor": "none", "edgecolor": INK, "hatch": "////"},
)
BINS = 40


@dataclass(frozen=True)
class Curve:
    """Means at each x, with their intervals drawn as a band. None leaves a gap."""

    x: Sequence[float]
    points: Sequence[Interval | None]


@dataclass(frozen=True)
class CurvePanel:
    """A panel of curves by name, and of references without a band, such as a paper's values."""

    title: str
    unit: str
    curves: Mapping[str, Curve]
    references: Mapping[str, Curve] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanePanel:
    """Items in the plane, float [N, 2], with the class of each: an index of `names`, or -1."""

    title: str
    place_N2: np.ndarray
    code_N: np.ndarray
    names: Sequence[str]


@dataclass(frozen=True)
class HistogramPanel:
    """Samples of a quantity by name, and the bounds of the axis."""

    title: str
    unit: str
    samples: Mapping[str, np.ndarray]
    bounds: tuple[float, float]


def fixed(x: Sequence[float], values: Sequence[float]) -> Curve:
    """Returns a curve of exact values, without a band."""
    return Curve(x, [Interval(v, v, v, False) for v in values])


def level(x: Sequence[float], fraction: Interval | None) -> Curve:
    """Returns a mean independent of x, in percent, as a line over the whole axis."""
    if fraction is None:
        return Curve(x, [None] * len(x))
    return fixed(x, [100 * fraction.value] * len(x))


def curves_figure(panels: Sequence[CurvePanel], x_label: str, *, log: bool = False) -> bytes:
    """Draws panels of curves over the same x, with a logarithmic axis if `log`, as a PNG."""
    names = dict.fromkeys(name for panel in panels for name in panel.curves)
    looks = dict(zip(names, LOOKS, strict=False))
    references = dict.fromkeys(name for panel in panels for name in panel.references)
    looks |= zip(references, REFERENCES, strict=False)
    assert len(looks) == len(names) + len(references), (
        f"at most {len(LOOKS)} curves and {len(REFERENCES)} references, got {len(names)} and "
        f"{len(references)}"
    )
    with plotting.styled():
        figure, grid = plotting.panels(len(panels), height=2.9 if len(panels) > 1 else 4.0)
        for axes, panel in zip(grid, panels, strict=True):
            axes.set_title(plotting.shortened(panel.title, 44), loc="left")
            axes.set_xlabel(x_label)
            axes.set_ylabel(panel.unit)
            for name, curve in {**panel.references, **panel.curves}.items():
                _draw(axes, curve, looks[name])
            xs = [x for curve in panel.curves.values() for x in curve.x]
            if log and xs:
                plotting.log_axis(axes)
        plotting.legend(figure, looks)
        return plotting.png(figure)


def intervals_figure(panels: Sequence[CurvePanel], groups: Sequence[str]) -> bytes:
    """Draws intervals as a PNG. The points of all curves with the same x form a group, from 0."""
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    looks = {n: {**look, "linestyle": ""} for n, look in zip(names, LOOKS, strict=False)}
    with plotting.styled():
        figure, grid = plotting.panels(len(panels), height=3.2)
        for axes, panel in zip(grid, panels, strict=True):
            axes.set_title(panel.title, loc="left")
            axes.set_ylabel(panel.unit)
            axes.set_xticks(range(len(groups)), groups)
            for name, curve in panel.curves.items():
                aside = (names.index(name) - (len(names) - 1) / 2) / (len(names) + 1)
                found = [(x + aside, y) for x, y in zip(curve.x, curve.points, strict=True) if y]
                if found:
                    value, low, high = np.array([y[:3] for _, y in found], dtype=float).T
                    ends = [value - low, high - value]
                    axes.errorbar([x for x, _ in found], value, ends, capsize=2, **looks[name])
        plotting.legend(figure, looks)
        return plotting.png(figure)


def _draw(axes: Axes, curve: Curve, look: dict[str, Any]) -> None:
    """Draws a curve at all x with values. An interval without end has no band."""
    found = [(x, point) for x, point in zip(curve.x, curve.points, strict=True) if point]
    if not found:
        return
    xs = [x for x, _ in found]
    axes.plot(xs, [point.value for _, point in found], **look)
    low, high = np.array([point[1:3] for _, point in found], dtype=float).T
    if np.isfinite([low, high]).all() and (high > low).any():
        axes.fill_between(xs, low, high, color=look["color"], alpha=0.16, linewidth=0)


def plane_figure(panels: Sequence[PlanePanel], method: str, columns: int | None = None) -> bytes:
    """Draws items in the plane, by class, with a legend below each panel, and returns a PNG.

    `method` names the axes, which have no unit. All except the most frequent classes are grey.
    """
    with plotting.styled():
        most = max(min(len(panel.names), len(CLASSES) + 1) for panel in panels)
        height = 3.0 + 0.2 * ((most + 1) // 2)
        figure, grid = plotting.panels(len(panels), height=height, columns=columns)
        for axes, panel in zip(grid, panels, strict=True):
            # In three columns, a title of 36 letters fits at this size.
            axes.set_title(plotting.shortened(panel.title, 36), loc="left", fontsize=9.5)
            axes.set_xlabel(f"{method} axis 1 (no unit)")
            axes.set_ylabel(f"{method} axis 2 (no unit)")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(False)
            handles = [_scatter(axes, panel, *each) for each in _looks(panel)]
            # Above the x label, because a legend below the axes would overlap with it.
            axes.legend(
                handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.09), ncols=2,
                fontsize=8, columnspacing=1.0, handletextpad=0.2, borderaxespad=0.3,
            )  # fmt: skip
        return plotting.png(figure)


def _looks(panel: PlanePanel) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """Returns name, items and look of the other classes, then of each frequent class in order."""
    known = panel.code_N[panel.code_N >= 0]
    order = np.argsort(-np.bincount(known, minlength=len(panel.names)), kind="stable")
    shown, others = order[: len(CLASSES)], order[len(CLASSES) :]
    found = [(panel.names[code], panel.code_N == code, CLASSES[i]) for i, code in enumerate(shown)]
    if len(others):
        # First, because the points of named classes must be drawn above these points.
        look = {"color": "#CFCFCF", "marker": "."}
        found.insert(0, (f"{len(others)} others", np.isin(panel.code_N, others), look))
    return found


def _scatter(
    axes: Axes, panel: PlanePanel, name: str, is_shown: np.ndarray, look: dict[str, Any]
) -> Line2D:
    """Draws the items of a class and returns its entry of the legend."""
    size = 3.0 if is_shown.size > 1000 else 4.0
    style = {**look, "linestyle": "", "markersize": size, "markeredgewidth": 0.6}
    axes.plot(*panel.place_N2[is_shown].T, alpha=0.75, **style)
    return Line2D([], [], label=plotting.shortened(name, 20), **{**style, "markersize": 5.0})


def histograms_figure(panels: Sequence[HistogramPanel], columns: int) -> bytes:
    """Draws at most two samples in each panel as shares of their size, and returns a PNG.

    Samples outside of the bounds are counted in the first or last bin.
    """
    with plotting.styled():
        figure, grid = plotting.panels(len(panels), height=2.2, columns=columns)
        names = dict.fromkeys(name for panel in panels for name in panel.samples)
        looks = dict(zip(names, BARS, strict=False))
        assert len(looks) == len(names), f"at most {len(BARS)} samples, got {len(names)}"
        for i, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
            axes.set_title(panel.title, loc="left", fontsize=9.5)
            axes.set_xlabel(panel.unit)
            if i % columns == 0:
                axes.set_ylabel("share of pairs (fraction)")
            edges = np.linspace(*panel.bounds, BINS + 1).tolist()
            for name, sample in panel.samples.items():
                inside = np.clip(sample, *panel.bounds)
                weights = np.full(len(sample), 1 / len(sample))
                axes.hist(inside, edges, weights=weights, histtype="stepfilled", **looks[name])
        handles = [Patch(label=name, **look) for name, look in looks.items()]
        figure.legend(handles=handles, loc="outside upper left", ncols=2)
        return plotting.png(figure)
