"""What halving finds in recorded trainings, by their curves alone: in seconds, without a sweep.

search_curves.json holds twelve sets of trainings as `search` makes them, twelve temperatures each
with a probe after each of 18 epochs: of the photographs and of the drawn images, three training
seeds, recorded twice. The recordings before differ in the last bits of the losses, and so are other
trainings. With halving all trials wait for each other, so that who goes on follows from the curves;
that sweeps come to the same is tested.
"""

import json
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from benchmarks.search import SETTINGS, TEMPERATURES, Curves, Found, points_below
from benchmarks.table import markdown
from mtcon_ray.search.schedulers import Halving

RECORDED = Path(__file__).with_suffix(".json")
AIM = 0.5
HALVINGS = {
    **{name: s["scheduler"] for name, s in SETTINGS.items() if s["scheduler"]["name"] == "halving"},
    "halving, reduction 3, 1 rung": {"name": "halving", "reduction": 3, "num_rungs": 1},
}
NUM_AT_RANDOM = 3


def measure() -> str:
    """The table."""
    recorded: dict[str, list[Curves]] = json.loads(RECORDED.read_text())
    header = ["by curves, by training seed", "share of the epochs"]
    header += [f"points below the grid's best: {data}" for data in recorded]
    header += [f"within {AIM} points", "median", "mean", "worst"]
    rows = []
    for name, setting in HALVINGS.items():
        spec = Halving.Spec.model_validate(setting)
        share, lost = 0.0, []
        for curves in (c for sets in recorded.values() for c in sets):
            found = halve(curves, spec)
            share = found.epochs / sum(map(len, curves.values()))
            lost.append(points_below([curves], found.temperature))
        rows.append(_row(name, share, lost, list(map(len, recorded.values()))))
    at_random = [by_chance(c) for sets in recorded.values() for c in sets]
    share = NUM_AT_RANDOM / len(TEMPERATURES)
    sizes = list(map(len, recorded.values()))
    rows.append(_row(f"{NUM_AT_RANDOM} at random, median", share, at_random, sizes))
    return markdown(header, rows)


def halve(curves: Curves, spec: Halving.Spec) -> Found:
    """The epochs that a sweep over the whole grid trains, and the temperature that it finds."""
    (length,) = set(map(len, curves.values()))
    ends = [*spec.rung_epochs(length, 1), length]
    alive, epochs, before = list(curves), 0, 0
    for end, most in zip(ends, spec.survivors(len(curves)), strict=True):
        alive = sorted(alive, key=lambda t: -curves[t][before - 1] if before else 0.0)[:most]
        epochs += len(alive) * (end - before)
        before = end
    return Found(epochs, max(alive, key=lambda t: curves[t][-1]))


def by_chance(curves: Curves) -> float:
    """Points below the best, the median of all choices of NUM_AT_RANDOM temperatures."""
    below = {t: points_below([curves], t) for t in curves}
    return median(min(below[t] for t in some) for some in combinations(curves, NUM_AT_RANDOM))


def _row(name: str, share: float, lost: list[float], sizes: list[int]) -> list[str]:
    """Data set by data set, then all sets together."""
    cells, rest = [name, f"{share:.1%}"], list(lost)
    for size in sizes:
        some, rest = rest[:size], rest[size:]
        cells.append(", ".join(f"{value:.2f}" for value in some))
    within = sum(value <= AIM for value in lost)
    summary = (f"{value:.2f}" for value in (median(lost), fmean(lost), max(lost)))
    return [*cells, f"{within} of {len(lost)}", *summary]
