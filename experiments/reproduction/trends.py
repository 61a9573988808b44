"""Statistics of several trainings together, paired by seed: trends, differences and means."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import numpy as np
from scipy.stats import rankdata, t

from experiments.reproduction.cells import Setting
from experiments.reproduction.experiment import Answer, Verdict
from experiments.reproduction.judging import answer_at, points
from mtcon_ray.evaluation.intervals import SHARES, Interval, Scores, mean_interval, verdict
from mtcon_ray.presentation import ONE_SEED, interval_text

NO_RESULTS = "a training has no finished result"


def combined(
    statistic: Callable[[np.ndarray], np.ndarray], scores: Sequence[Scores | None]
) -> Scores | None:
    """Returns a statistic of P systems' scores, by seed and by resample of the test items.

    The statistic maps [P, ...] to [...]. Resamples are paired, so that what the seeds and the items
    do to all systems cancels in a difference. None without the scores of a system, and for systems
    with different seeds.
    """
    found = [each for each in scores if each is not None]
    if not found or len(found) < len(scores) or len({each.seeds for each in found}) > 1:
        return None
    score_S = statistic(np.stack([each.score_S for each in found]))
    drawn_SK = statistic(np.stack([each.drawn_SK for each in found]))
    return Scores(found[0].seeds, score_S, drawn_SK, found[0].rows, found[0].truth)


def mean_of(scores: Sequence[Scores | None]) -> Scores | None:
    """Returns the mean of several scores, such as those of one system's tasks."""
    return combined(lambda s_P: s_P.mean(axis=0), scores)


def interval_of(scores: Scores | None) -> Interval | None:
    """Returns the mean over seeds with its 95 % interval over seeds and test items."""
    return None if scores is None else mean_interval(scores)


def seeds_of(scores: Scores | None) -> list[float]:
    """Returns the score of each seed, [] without scores."""
    return [] if scores is None else [float(score) for score in scores.score_S]


def over_seeds(values: Sequence[float]) -> Interval | None:
    """Returns the mean of numbers with one of each seed, and its 95 % interval by Student's t.

    A single seed has an interval without end. None without values.
    """
    if not values:
        return None
    mean, half = fmean(values), math.inf
    if len(values) > 1:
        quantile = float(t.ppf(SHARES[1], len(values) - 1))
        half = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values) > 1)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns Spearman's rank correlation, with mean ranks for equal values; 0 for a constant.

    >>> rank_correlation([1, 2, 3, 4], [0.1, 0.3, 0.2, 0.9])
    0.8
    """
    a, b = (rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / scale, 12) if scale else 0.0


def trend(x: Sequence[float], by_x: Sequence[Sequence[float]]) -> Interval | None:
    """Returns the mean over seeds of the rank correlation of x and the seeds' values at x.

    `by_x` has the values of all seeds at each x. The interval is that of `over_seeds`, within
    [-1, 1]. None where a seed has no value at an x.
    """
    if len({len(values) for values in by_x}) != 1:
        return None
    found = over_seeds([rank_correlation(x, seed) for seed in zip(*by_x, strict=True)])
    return found and found._replace(low=max(found.low, -1.0), high=min(found.high, 1.0))


def trend_verdict(
    setting: Setting,
    claim: str,
    x: Sequence[float],
    by_x: Sequence[Sequence[float]],
    *,
    falls: bool = False,
) -> Verdict:
    """Returns the verdict of a claim that a value rises, or falls, with x: see `trend`."""
    found = trend(x, by_x)
    if found is None:
        return Verdict(claim, answer_at(setting, "not testable here"), why=NO_RESULTS)
    value, low, high = found[:3]
    if found.over_seeds:
        ours = f"rank correlation {value:+.2f} [{low:+.2f}, {high:+.2f}]"
    else:
        ours = f"rank correlation {value:+.2f}{ONE_SEED}"
    signed = Interval(-value, -high, -low, found.over_seeds) if falls else found
    return Verdict(claim, answer_at(setting, _answer(signed)), ours=ours)


def difference_verdict(
    setting: Setting, claim: str, found: Interval | None, *, in_points: bool = True
) -> Verdict:
    """Returns the verdict of a claim that a difference of fractions is positive.

    It is shown in percentage points, or with `in_points` False as it is.
    """
    if found is None:
        return Verdict(claim, answer_at(setting, "not testable here"), why=NO_RESULTS)
    shown = points(found) if in_points else interval_text(found, signed=True)
    if math.isinf(found.low):  # of a single seed, without test items
        unit = " points" if in_points else ""
        shown = f"{shown.partition(' ')[0]}{ONE_SEED}{unit}"
    return Verdict(claim, answer_at(setting, _answer(found)), ours=shown)


def _answer(found: Interval) -> Answer:
    answer: Answer = verdict(found)
    return answer
