"""TPE on a bounded number of trials, against Optuna's own on all: its cost, and what it finds.

A search of 1,000 trials of a made-up accuracy of five fields, its optimum elsewhere for each seed,
its values noisy; once with every trial trained to its end, once with those stopped early that after
a fifth of their epochs are not among the better third. Optuna's sampler is made once and kept, as
its documentation has it; ours is made anew for each suggestion, as the searcher does. Up to the
bound both suggest the same, which is checked.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import fmean, median, stdev
from time import perf_counter
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import TrialState

from benchmarks.table import markdown
from mtcon_ray.sweep.study import open_study
from mtcon_ray.sweep.tpe import MAX_ENDED, KnownSpaceTPE, Modelled

SPACE: dict[str, BaseDistribution] = {
    "epochs": IntDistribution(10, 200),
    "batch_size": CategoricalDistribution([32, 64, 128, 256]),
    "jaccard": FloatDistribution(0.1, 0.9),
    "lr": FloatDistribution(0.001, 1, log=True),
    "temperature": FloatDistribution(0.03, 1, log=True),
}
OF_BATCHES = {32: 0.02, 64: 0.0, 128: 0.005, 256: 0.03}
NOISE, EARLY_NOISE = 0.01, 0.03
MARKS = (200, 400, 600, 1000)
WINDOW = 100  # suggestions before a mark over which seconds and values are averaged
SEEDS = range(24)

Making = Callable[[int], BaseSampler]


class Accuracy:
    """A made-up accuracy: at most some 0.81, a hill with ripples, its top drawn from the seed."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.temperature = 10 ** draw.uniform(-1.3, -0.3)
        self.lr = 10 ** draw.uniform(-2.0, -0.5)
        self.jaccard = draw.uniform(0.2, 0.8)

    def __call__(self, params: dict[str, Any]) -> float:
        x = math.log10(params["temperature"] / self.temperature)
        y = math.log10(params["lr"] / self.lr)
        lost: float = 0.15 * x**2 + 0.1 * abs(y) ** 1.5 + 0.05 * (x - y) ** 2
        lost += 0.1 * (1 - params["epochs"] / 200) ** 2 + OF_BATCHES[params["batch_size"]]
        lost += 0.1 * (params["jaccard"] - self.jaccard) ** 2
        return 0.8 - lost + 0.01 * math.cos(9 * x + 5 * y)


@dataclass
class Search:
    """What one search took and found, trial by trial."""

    seconds: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)  # without noise
    winners: list[float] = field(default_factory=list)  # such a value of the best so far by noise
    params: list[dict[str, Any]] = field(default_factory=list)
    stopped: list[bool] = field(default_factory=list)


def search(
    make: Making, seed: int, num_trials: int, *, stopped_early: bool, log: Search
) -> Iterator[None]:
    """One trial per step, logged."""
    study, accuracy = open_study(None, "suggestions"), Accuracy(seed)
    early: list[float] = []
    best, winner = -math.inf, math.nan
    for number in range(num_trials):
        noise = Random(f"{seed}/{number}")
        begin = perf_counter()
        study.sampler = make(noise.getrandbits(31))
        trial = study.ask(SPACE)
        log.seconds.append(perf_counter() - begin)
        value = accuracy(trial.params)
        early.append(value + noise.gauss(0, EARLY_NOISE))
        at_end = value + noise.gauss(0, NOISE)
        if stopped_early and early[-1] < sorted(early)[2 * len(early) // 3]:
            trial.report(early[-1], 1)
            told = study.tell(trial, state=TrialState.PRUNED)
        else:
            told = study.tell(trial, at_end)
            if at_end > best:
                best, winner = at_end, value
        log.stopped.append(told.state is TrialState.PRUNED)
        log.values.append(value)
        log.winners.append(winner)
        log.params.append(trial.params)
        yield


class Ours:
    """Made anew for each suggestion; what is modelled goes on, as in a sweep."""

    def __init__(self) -> None:
        self.modelled = Modelled()

    def __call__(self, seed: int) -> BaseSampler:
        return KnownSpaceTPE(SPACE, self.modelled, seed=seed)


class Kept:
    """Optuna's sampler, made once; only its numbers are drawn anew, so that both draw the same."""

    def __init__(self) -> None:
        self.sampler = TPESampler()

    def __call__(self, seed: int) -> BaseSampler:
        fresh = TPESampler(seed=seed)
        self.sampler._rng, self.sampler._random_sampler = fresh._rng, fresh._random_sampler
        return self.sampler


def compare(
    marks: tuple[int, ...], seeds: range, *, stopped_early: bool
) -> list[tuple[Search, Search]]:
    """Ours and Optuna's, for each seed a search of each, trial by trial in turns."""
    found = []
    for seed in seeds:
        logs = (Search(), Search())
        makes: tuple[Making, Making] = (Ours(), Kept())
        steps = [
            search(make, seed, marks[-1], stopped_early=stopped_early, log=log)
            for make, log in zip(makes, logs, strict=True)
        ]
        for _ in zip(*steps, strict=True):
            pass
        assert logs[0].params[:MAX_ENDED] == logs[1].params[:MAX_ENDED]
        found.append(logs)
    return found


def rows(found: list[tuple[Search, Search]], marks: tuple[int, ...]) -> list[tuple[str, ...]]:
    """A row per mark: milliseconds, values suggested, and the winner's; over the seeds."""
    cells = []
    for mark in marks:
        last = slice(max(0, mark - WINDOW), mark)
        numbers = [f"{mark:,}"]
        for each in (0, 1):
            numbers.append(f"{1e3 * median(fmean(s[each].seconds[last]) for s in found):.1f}")
        for each in (0, 1):
            numbers.append(f"{fmean(fmean(s[each].values[last]) for s in found):.4f}")
        winners = [[s.winners[mark - 1] for s in pair] for pair in found]
        gained = [a - b for a, b in winners]
        error = stdev(gained) / len(gained) ** 0.5
        numbers.append(f"{fmean(a for a, _ in winners):.4f}")
        numbers.append(f"{fmean(gained):+.4f} ({error:.4f})")
        cells.append(tuple(numbers))
    return cells


def measure(marks: tuple[int, ...] = MARKS, seeds: range = SEEDS) -> str:
    """The tables. A quarter of an hour."""
    tables = []
    for stopped_early in (False, True):
        found = compare(marks, seeds, stopped_early=stopped_early)
        stopped = fmean(fmean(pair[0].stopped) for pair in found)
        header = (
            f"trials, {stopped:.0%} of them stopped early",
            "ms a suggestion, ours",
            "Optuna's",
            "accuracy of what was suggested, ours",
            "Optuna's",
            "the winner's, ours",
            "ours less Optuna's (standard error)",
        )
        tables.append(markdown(header, rows(found, marks)))
    return "\n\n".join(tables)
