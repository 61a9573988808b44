"""Statistics of several trainings, paired by seed: trends, differences, means, verdicts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
from scipy.stats import page_trend_test, rankdata, t

from experiments.reproduction.cells import Setting
from experiments.reproduction.experiment import Answer, Trained, Verdict
from experiments.reproduction.experiment import Tested as Tested
from experiments.reproduction.judging import (
    answer_at,
    comparable,
    in_points,
    points,
    powered,
)
from mtcon_ray.comparison.claims import too_few_seeds
from mtcon_ray.display.presentation import ONE_SEED, interval_text, p_text
from mtcon_ray.evaluation.intervals import (
    SHARES,
    Estimate,
    Interval,
    Scores,
    detectable,
    holm,
    judge,
    mean_interval,
    p_value,
    standard_error,
)

NO_RESULTS = "a training has no finished result"


def combined(
    statistic: Callable[[np.ndarray], np.ndarray], scores: Sequence[Scores | None]
) -> Scores | None:
    """Returns a statistic of P systems' scores, by seed and by resample of the test items.

    The statistic maps [P, ...] to [...]. Resamples are paired, which cancels the common effects of
    seeds and items in a difference. Returns None if a system lacks scores, or if systems have
    different seeds.
    """
    found = [each for each in scores if each is not None]
    if not found or len(found) < len(scores) or len({each.seeds for each in found}) > 1:
        return None
    score_S = statistic(np.stack([each.score_S for each in found]))
    drawn_SK = statistic(np.stack([each.drawn_SK for each in found]))
    return Scores(found[0].seeds, score_S, drawn_SK, found[0].rows, found[0].truth)


def mean_of(scores: Sequence[Scores | None]) -> Scores | None:
    """Returns the mean of several scores, such as the scores of a system's tasks."""
    return combined(lambda s_P: s_P.mean(axis=0), scores)


def difference_of(better: Trained, than: Trained, label: str) -> Scores | None:
    """Returns the paired difference of two systems' scores of a label."""
    return combined(lambda s: s[0] - s[1], [better.scores(label), than.scores(label)])


def interval_of(scores: Scores | None) -> Interval | None:
    """Returns the mean over seeds with its 95 % interval over seeds and test items."""
    return None if scores is None else mean_interval(scores)


def seeds_of(scores: Sequence[Scores | None]) -> list[list[float]]:
    """Returns the scores by system and seed, or [] for all systems if their seeds differ."""
    found = [each for each in scores if each is not None]
    if len(found) < len(scores) or len({each.seeds for each in found}) > 1:
        return [[] for _ in scores]
    return [each.score_S.tolist() for each in found]


def over_seeds(values: Sequence[float]) -> Interval | None:
    """Returns the mean of numbers of different seeds, and its 95 % interval by Student's t.

    A single seed has an interval without end. Returns None without values.
    """
    if not values:
        return None
    mean, half = fmean(values), math.inf
    if len(values) > 1:
        quantile = float(t.ppf(SHARES[1], len(values) - 1))
        half = quantile * stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half, len(values) > 1)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns Spearman's rank correlation, with mean ranks for equal values, 0 for a constant.

    >>> rank_correlation([1, 2, 3, 4], [0.1, 0.3, 0.2, 0.9])
    0.8
    """
    a, b = (rankdata(values) - (len(x) + 1) / 2 for values in (x, y))
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return round(float(a @ b) / scale, 12) if scale else 0.0


def trend(x: Sequence[float], by_x: Sequence[Sequence[float]]) -> Interval | None:
    """Returns the mean over seeds of the rank correlation of x and the seeds' values at x.

    `by_x` has the values of all seeds at each x. The interval is from `over_seeds`, cut to
    [-1, 1]. Returns None if a seed has no value at an x.
    """
    if len({len(values) for values in by_x}) != 1:
        return None
    found = over_seeds([rank_correlation(x, seed) for seed in zip(*by_x, strict=True)])
    return found and found._replace(low=max(found.low, -1.0), high=min(found.high, 1.0))


def trend_tested(
    claim: str, x: Sequence[float], by_x: Sequence[Sequence[float]], *, falls: bool = False
) -> Tested:
    """Returns the test of the claim "the value rises with x", or "falls" if `falls`.

    Uses the exact trend test of Page (1963, "Ordered hypotheses for multiple treatments"). Its
    statistic is the mean over seeds of the rank correlation: see `trend`.
    """
    found = trend(x, by_x)
    if found is None:
        return Tested(claim, None, why=NO_RESULTS)
    value, low, high = found[:3]
    if found.over_seeds:
        ours = f"rank correlation {value:+.2f} [{low:+.2f}, {high:+.2f}]"
    else:
        ours = f"rank correlation {value:+.2f}{ONE_SEED}"
    signed = Interval(-value, -high, -low, found.over_seeds) if falls else found
    if why := too_few_seeds(len(by_x[0])):
        return Tested(claim, signed, ours, why=why)
    ranks_X = rankdata(x)
    one_sided = [
        float(page_trend_test(np.transpose(by_x), predicted_ranks=ranks).pvalue)
        for ranks in (ranks_X, len(x) + 1 - ranks_X)
    ]
    return Tested(claim, signed, ours, min(1.0, 2 * min(one_sided)))


def difference_tested(claim: str, scores: Scores | None) -> Tested:
    """Returns the test of positive scores, by seeds and resamples of the items.

    See `mtcon_ray.evaluation.intervals.standard_error`. The variance over seeds is computed from
    this claim alone. The claims of a figure compare means and differences of several scores, and
    unlike a table's claims, their variances are not alike.
    """
    found = interval_of(scores)
    if scores is None or found is None:
        return Tested(claim, None, why=NO_RESULTS)
    if why := too_few_seeds(len(scores.seeds)):
        return Tested(claim, found, points(found), why=why)
    none = scores._replace(score_S=0 * scores.score_S, drawn_SK=0 * scores.drawn_SK)
    error = standard_error(scores, none)
    return Tested(claim, found, points(found), p_value(found.value, error), error=error)


def alike_tested(claim: str, scores: Scores | None, margin: float) -> Tested:
    """Returns the test of scores between -margin and margin, a fraction.

    Uses two one-sided tests (Schuirmann 1987, "A comparison of the two one-sided tests procedure
    and the power approach for assessing the equivalence of average bioavailability"). The shown
    difference is the distance from the nearer margin, negative outside. Scores without any spread,
    such as scores that are equal by construction, cannot be tested.
    """
    tested = difference_tested(claim, scores)
    if tested.difference is None or tested.error is None:
        return tested
    if not tested.error.value:
        why = "no spread over seeds and test items"
        return replace(tested, difference=None, p=None, error=None, why=why)
    room = margin - abs(tested.difference.value)
    inside = tested.difference._replace(value=room, low=room, high=room)
    return replace(tested, difference=inside, p=p_value(room, tested.error))


def seeds_tested(claim: str, by_seed: Sequence[float], *, in_points: bool = True) -> Tested:
    """Returns the test of positive differences of fractions, given by seed, by Student's t.

    The differences are shown in percentage points, or as fractions with `in_points` False.
    """
    found = over_seeds(by_seed)
    if found is None:
        return Tested(claim, None, why=NO_RESULTS)
    ours = points(found) if in_points else interval_text(found, signed=True)
    if math.isinf(found.low):  # a single seed, without test items
        ours = f"{ours.partition(' ')[0]}{ONE_SEED}{' points' if in_points else ''}"
    if why := too_few_seeds(len(by_seed)):
        return Tested(claim, found, ours, why=why)
    # Without spread, such as accuracies of 1.0 in all seeds, p is 0, or 1 for a zero difference.
    error = Estimate(stdev(by_seed) / math.sqrt(len(by_seed)), len(by_seed) - 1)
    tested = Tested(claim, found, ours, p_value(found.value, error), in_points=in_points)
    return replace(tested, error=error if error.value else None)


def decided(setting: Setting, tests: Sequence[Tested]) -> list[Verdict]:
    """Returns the verdicts of claims corrected together: pass all claims of an experiment."""
    p_values = [each.p for each in tests if each.p is not None]
    corrected = iter(holm(p_values))
    verdicts = []
    for each in tests:
        p = None if each.p is None else next(corrected)
        answer: Answer = "not testable here" if each.difference is None else "undecided"
        if each.difference is not None and p is not None:
            answer = judge(each.difference, p=p)
        smallest = each.error and detectable(each.error, len(p_values))
        answer = comparable(
            setting, powered(answer, smallest, each.paper), is_held_out=each.is_held_out
        )
        answer = answer_at(setting, answer)
        shown = "" if p is None else p_text(p)
        why = each.why if answer in ("not testable here", "undecided") else ""
        paper = "" if each.paper is None else f"{100 * each.paper:+.2f} points"
        found = Verdict(each.claim, answer, paper, each.ours, why, each.label, shown)
        size = in_points(smallest) if each.in_points or smallest is None else f"{smallest:.3f}"
        verdicts.append(replace(found, detectable=size, author=each.author, note=each.note))
    return verdicts
