"""Statistics of several trainings, paired by seed: changes, differences, means, verdicts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
from scipy.stats import t

from experiments.reproduction.cells import Setting
from experiments.reproduction.experiment import Answer, Tested, Trained, Verdict
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
    seed_variance,
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
    return found[0]._replace(score_S=score_S, drawn_SK=drawn_SK)


def mean_of(scores: Sequence[Scores | None]) -> Scores | None:
    """Returns the mean of several scores, such as the scores of a system's tasks."""
    return combined(lambda s_P: s_P.mean(axis=0), scores)


def difference_of(better: Trained, than: Trained, label: str) -> Scores | None:
    """Returns the paired difference of two systems' scores of a label."""
    return combined(lambda s: s[0] - s[1], [better.scores(label), than.scores(label)])


def interval_of(scores: Scores | None) -> Interval | None:
    """Returns the mean over seeds with its 95 % interval over seeds and test items."""
    return None if scores is None else mean_interval(scores)


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


def fitted_change(values: np.ndarray) -> np.ndarray:
    """Returns the change from first to last of a line fitted by least squares: [X, ...] to [...].

    The line is a function of the place in the order of the X values, not of a varied field: numbers
    of epochs double from place to place.

    >>> float(fitted_change(np.array([0.1, 0.2, 0.6])))
    0.5
    """
    X = len(values)
    place_X = np.arange(X) - (X - 1) / 2
    slope = np.tensordot(place_X, values, axes=1) / (place_X @ place_X)
    return np.asarray((X - 1) * slope)


def changes_of(by_x: Sequence[Sequence[float]]) -> list[float]:
    """Returns the fitted change of each seed's values, [] if a seed has no value at an x."""
    if len({len(values) for values in by_x}) != 1:
        return []
    return [float(change) for change in fitted_change(np.array(by_x))]


def difference_tested(claim: str, scores: Scores | None, least: Estimate | None = None) -> Tested:
    """Returns the test of positive scores, by seeds and resamples of the items.

    The variance over seeds is at least `least`: see
    `mtcon_ray.evaluation.intervals.standard_error`.
    """
    found = interval_of(scores)
    if scores is None or found is None:
        return Tested(claim, None, why=NO_RESULTS)
    if why := too_few_seeds(len(scores.seeds)):
        return Tested(claim, found, points(found), why=why)
    error = standard_error(scores, _zero(scores), least)
    return Tested(claim, found, points(found), p_value(found.value, error), error=error)


def differences_tested(claims: Mapping[str, Scores | None]) -> list[Tested]:
    """Returns the tests of like differences, such as the means of a table, by their claims.

    A few seeds estimate their own variance poorly, and some of many differences will seem to vary
    less than they do. So the variance over seeds of each difference is at least the mean one.
    """
    found = [each for each in claims.values() if each is not None and len(each.seeds) > 1]
    variances = [v.value for each in found if (v := seed_variance(each, _zero(each)))]
    freedom = sum(len(each.seeds) - 1 for each in found)
    least = Estimate(fmean(variances), freedom) if variances else None
    return [difference_tested(claim, scores, least) for claim, scores in claims.items()]


def _zero(scores: Scores) -> Scores:
    return scores._replace(score_S=0 * scores.score_S, drawn_SK=0 * scores.drawn_SK)


def alike_tested(claim: str, scores: Scores | None, margin: float) -> Tested:
    """Returns the test of scores between -margin and margin, a fraction.

    Uses two one-sided tests (Schuirmann 1987, "A comparison of the two one-sided tests procedure
    and the power approach for assessing the equivalence of average bioavailability"). The tested
    difference is the distance from the nearer margin, negative outside, and the margin if the
    scores are equal. Scores without any spread, such as scores that are equal by construction,
    cannot be tested.
    """
    tested = difference_tested(claim, scores)
    if tested.difference is None or tested.error is None:
        return tested
    if scores is None or not np.ptp(scores.drawn_SK):
        why = "no spread over seeds and test items"
        return replace(tested, difference=None, p=None, error=None, why=why)
    room = margin - abs(tested.difference.value)
    inside = tested.difference._replace(value=room, low=room, high=room)
    return replace(tested, difference=inside, p=p_value(room, tested.error), expected=margin)


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
        expected = each.paper if each.expected is None else each.expected
        answer = powered(answer, smallest, expected)
        answer = comparable(
            setting, answer, is_held_out=each.is_held_out, has_classes=each.has_classes
        )
        answer = answer_at(setting, answer)
        shown = "" if p is None else p_text(p)
        why = each.why if answer in ("not testable here", "undecided") else ""
        paper = "" if each.paper is None else f"{100 * each.paper:+.2f} points"
        found = Verdict(each.claim, answer, paper, each.ours, why, each.label, shown)
        size = in_points(smallest) if each.in_points or smallest is None else f"{smallest:.3f}"
        verdicts.append(replace(found, detectable=size, author=each.author, note=each.note))
    return verdicts
