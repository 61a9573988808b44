"""Early stopping on recorded validation curves: the chosen temperature, without a sweep.

search_curves.json holds sets of trainings as `search` makes them: twelve temperatures, a probe
after each of 18 epochs, a set per training seed and kind of data. `record_curves` writes it.

Halving decides from the curves alone, because every trial waits at a rung for all others. ASHA's
decision depends on the order of the trials. Therefore it runs the trials in turn, in the order of
each search seed, by the same object as in a sweep.
"""

import json
import random
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

from benchmarks.search import SEARCH_SEEDS, SETTINGS, TEMPERATURES, Curves, Found, points_below
from benchmarks.table import markdown
from mtcon_ray.spec.schedulers import ASHA, Halving
from mtcon_ray.sweep.stopping import Rungs

RECORDED = Path(__file__).with_suffix(".json")
AIM = 0.5
ASHAS = {
    name: s["scheduler"]
    for name, s in SETTINGS.items()
    if s["scheduler"]["name"] == "asha" and "sampler" not in s
}
NUM_AT_RANDOM = 3


def measure() -> str:
    """Returns both tables: temperatures found, and agreement of training seeds on the best."""
    recorded: dict[str, list[Curves]] = json.loads(RECORDED.read_text())
    header = ["early stopping", "share of the epochs"]
    header += [f"points below the grid's best: {data}" for data in recorded]
    header += [f"within {AIM} points", "median", "mean", "worst"]
    sets = [curves for of_kind in recorded.values() for curves in of_kind]
    sizes = [len(of_kind) for of_kind in recorded.values()]
    rows = []
    rows.append(_row("halving", sets, [[halve(curves)] for curves in sets], sizes))
    for name, setting in ASHAS.items():
        spec = ASHA.model_validate(setting)
        found = [[asha(curves, spec, seed) for seed in SEARCH_SEEDS] for curves in sets]
        rows.append(_row(f"{name}, median of {len(SEARCH_SEEDS)} orders", sets, found, sizes))
    lost = [by_chance(curves) for curves in sets]
    share = f"{NUM_AT_RANDOM / len(TEMPERATURES):.1%}"
    rows.append([f"{NUM_AT_RANDOM} at random, median", share, *_lost_cells(lost, sizes)])
    return f"{markdown(header, rows)}\n\n{agreement(recorded)}"


def agreement(recorded: Mapping[str, list[Curves]]) -> str:
    """Returns a table of the share of training seed pairs with the same best temperature.

    Also counts pairs with neighbouring temperatures on the grid of twelve, and lists the best
    temperatures.
    """
    header = ["data", "pairs of training seeds", "same best temperature", "same or next to it"]
    rows = []
    for data, sets in recorded.items():
        grid = list(sets[0])
        ends = [{t: curve[-1] for t, curve in curves.items()} for curves in sets]
        best = [grid.index(max(end, key=end.__getitem__)) for end in ends]
        pairs = list(combinations(best, 2))
        same, near = (sum(abs(a - b) <= most for a, b in pairs) for most in (0, 1))
        times = ", ".join(f"{grid[i]} ({n})" for i, n in sorted(Counter(best).items()))
        rows.append([data, str(len(pairs)), str(same), str(near), times])
    return markdown([*header, "best temperatures (seeds)"], rows)


def halve(curves: Curves) -> Found:
    """Returns the number of epochs in a sweep over the whole grid, and the best temperature."""
    (length,) = set(map(len, curves.values()))
    spec = Halving()
    (rung,) = spec.rung_epochs(length, 1)
    ranked = sorted(curves, key=lambda t: -curves[t][rung - 1])
    alive = ranked[: spec.survivors(len(curves))]
    epochs = len(curves) * rung + len(alive) * (length - rung)
    return Found(epochs, max(alive, key=lambda t: curves[t][-1]))


def asha(curves: Curves, spec: ASHA, seed: int) -> Found:
    """Returns the result of a sweep with ASHA, trial by trial in a random order.

    The winner is the best among the trials trained to their end.
    """
    order = list(curves)
    random.Random(seed).shuffle(order)
    rungs = Rungs(spec)
    epochs, finished = 0, []
    for temperature in order:
        curve = curves[temperature]
        reached = _train_until_stopped(rungs, temperature, curve)
        epochs += reached
        if reached == len(curve):
            finished.append(temperature)
    return Found(epochs, max(finished, key=lambda t: curves[t][-1]))


def _train_until_stopped(rungs: Rungs, name: str, curve: list[float]) -> int:
    """Returns the epoch at which ASHA stops a trial with these values, or the last epoch."""
    for epoch, value in enumerate(curve, 1):
        if rungs.stops(name, epoch / len(curve), value):
            return epoch
    return len(curve)


def by_chance(curves: Curves) -> float:
    """Returns the points below the best, the median over all choices of NUM_AT_RANDOM values."""
    below = {t: points_below([curves], t) for t in curves}
    return median(min(below[t] for t in some) for some in combinations(curves, NUM_AT_RANDOM))


def _row(name: str, sets: list[Curves], found: list[list[Found]], sizes: list[int]) -> list[str]:
    """Returns a row: per set the median loss over its searches, then statistics of all sets."""
    shares = [
        each.epochs / sum(map(len, curves.values()))
        for curves, searches in zip(sets, found, strict=True)
        for each in searches
    ]
    lost = [
        median(points_below([curves], each.temperature) for each in searches)
        for curves, searches in zip(sets, found, strict=True)
    ]
    return [name, f"{median(shares):.1%}", *_lost_cells(lost, sizes)]


def _lost_cells(lost: list[float], sizes: list[int]) -> list[str]:
    """Returns the losses by kind of data, then their number within AIM, median, mean and worst."""
    cells, rest = [], list(lost)
    for size in sizes:
        some, rest = rest[:size], rest[size:]
        cells.append(", ".join(f"{value:.2f}" for value in some))
    within = sum(value <= AIM for value in lost)
    summary = (f"{value:.2f}" for value in (median(lost), fmean(lost), max(lost)))
    return [*cells, f"{within} of {len(lost)}", *summary]
