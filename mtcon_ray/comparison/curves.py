"""The learning curves of a comparison's final trainings, a panel per system."""

from statistics import fmean
from typing import Any

from mtcon_ray.comparison.row import Row, objectives
from mtcon_ray.display import plotting
from mtcon_ray.records.results import objective_values

ACROSS = 4
SEED: dict[str, Any] = {"color": plotting.SKY, "linewidth": 0.9}
MEAN: dict[str, Any] = {"color": plotting.BLUE, "linewidth": 1.6}
OTHER: dict[str, Any] = {"color": "#B8B8B8", "linewidth": 0.6}
# Systems without training have a single value, drawn over all epochs.
FIXED: tuple[dict[str, Any], ...] = tuple(
    {"color": plotting.INK, "linewidth": 1.0, "linestyle": line} for line in ("--", ":", "-.")
)


def curves(rows: list[Row]) -> bytes | None:
    """Draws the objective of each trained system by epoch. Returns a PNG, None without a curve.

    A panel has the system's seeds, their mean, and the means of the other systems in grey.
    """
    seeds = {row.title: _by_seed(row) for row in rows if row.is_trained}
    means = {title: mean for title, each in seeds.items() if len(mean := _mean(each)) > 1}
    if not means:
        return None
    fixed = {row.title: _mean(_by_seed(row)) for row in rows if not row.is_trained}
    levels = {title: fmean(mean.values()) for title, mean in fixed.items() if mean}
    looks = dict(zip(levels, FIXED, strict=False))
    with plotting.styled():
        # The label of the y axis is longer than a low panel.
        height = 2.1 if len(means) > ACROSS else 2.8
        figure, panels = plotting.panels(len(means), height=height, columns=ACROSS)
        for i, (title, axes) in enumerate(zip(means, panels, strict=True)):
            axes.set_title(plotting.wrapped(title), loc="left", fontsize="medium")
            # First: matplotlib leaves no margin next to a line inside the existing limits.
            for name, look in looks.items():
                axes.axhline(levels[name], **look)
            for other in means:
                axes.plot(*_line(means[other]), **OTHER)
            for one in seeds[title]:
                axes.plot(*_line(one), **SEED)
            axes.plot(*_line(means[title]), **MEAN)
            axes.sharey(panels[0])
            axes.tick_params(labelleft=i % ACROSS == 0)
            plotting.count_axis(axes)
        figure.supxlabel("epoch", fontsize="medium")
        figure.supylabel(f"{objectives(rows)} (fraction)", fontsize="medium")
        named = {"mean over seeds": MEAN, "seeds": SEED, "other systems": OTHER}
        plotting.legend(figure, {**named, **looks})
        return plotting.png(figure)


def _by_seed(row: Row) -> list[dict[int, float]]:
    """Returns the objective by epoch of each finished training."""
    return [values for t in row.finished if (values := objective_values(t.reports))]


def _mean(seeds: list[dict[int, float]]) -> dict[int, float]:
    """Returns the mean over seeds by epoch, for the epochs common to all seeds."""
    shared = set.intersection(*map(set, seeds)) if seeds else set()
    return {epoch: fmean(values[epoch] for values in seeds) for epoch in sorted(shared)}


def _line(values: dict[int, float]) -> tuple[list[int], list[float]]:
    return list(values), list(values.values())
