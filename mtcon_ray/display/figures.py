"""The figure of all trials by epoch."""

import math
from typing import Any

from mtcon_ray.display import plotting
from mtcon_ray.display.plotting import FAILED, FULL, LESS, STANDINGS, WINNER
from mtcon_ray.display.presentation import value_word
from mtcon_ray.records.results import SweepResults, objective_values

# A curve and, at its last point, the marker that its trial has in the other figures.
CURVES: dict[str, dict[str, Any]] = {
    FULL: STANDINGS[FULL] | {"linestyle": "-", "linewidth": 1.3, "color": plotting.SKY},
    LESS: STANDINGS[LESS] | {"linestyle": "-", "linewidth": 1.0},
    FAILED: STANDINGS[FAILED] | {"linestyle": ":", "linewidth": 1.0},
    WINNER: STANDINGS[WINNER] | {"linestyle": "-", "linewidth": 2.4},
}


def epochs_figure(results: SweepResults) -> bytes:
    """Draws the objective of every trial by epoch, the winner on top; returns a PNG."""
    winner, present = results.winner, set()
    faint = 0.5 if len(results.trials) > plotting.CROWD else 1.0
    with plotting.styled():
        figure, (axes,) = plotting.panels(1, height=3.9)
        for trial in sorted(results.trials, key=lambda t: t is winner):
            probed = objective_values(trial.reports).items()
            points = {epoch: value for epoch, value in probed if math.isfinite(value)}
            kind = plotting.standing(trial, winner)
            if points:
                present.add(kind)
                axes.plot(
                    list(points),
                    list(points.values()),
                    alpha=1.0 if trial is winner else faint,
                    markevery=[len(points) - 1],
                    **CURVES[kind],
                )
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{value_word(results.recorded.labels, 'validation')} (fraction)")
        plotting.count_axis(axes)
        plotting.legend(figure, {kind: CURVES[kind] for kind in CURVES if kind in present})
        return plotting.png(figure)
