"""Confidence intervals and tests of scores and their differences, over seeds and test items.

A hierarchical bootstrap. Each of K resamples draws the test items with replacement, the same items
for all seeds and systems because they share the test set, then the seeds with replacement. The
effect of an item on all systems therefore cancels in a difference. Items of a group are drawn
together: photographs of one product are not independent.

The bootstrap variance of a mean over S seeds is too small by the factor (S - 1) / S. Deviations
over seeds are scaled up to correct this. With two or three seeds their spread remains poorly
estimated: the interval is too narrow if seeds vary more than items. If they vary less, it is
slightly too wide, because the interaction of seeds and items is counted three times (Owen 2007,
"The pigeonhole bootstrap", arXiv:0712.1111).

Average precision is higher in a resample than in the sample, because an item drawn twice is ranked
next to its copy. This bias has the size of the deviation itself, so resamples of a label set are
shifted to have the sample's score as their mean.

A test of a difference takes the bootstrap's variance over items, the variance over seeds, and the
tails of Student's t distribution. Counting the resamples beyond the margin would give p in steps
of 1 / (K + 1), with K = 1,000 no two-sided p below 0.002. Holm's correction of 30 claims needs
0.05 / 30 = 0.0017, and ten times as many resamples would take ten times as long. A normal tail
would be too light: it ignores how poorly a few seeds, or groups of items, estimate their spread.

Three seeds are sometimes close together by chance, and their difference then looks too sure for any
tail. So the variance over seeds of a claim is at least the mean variance over seeds of all claims
tested together. Otherwise, if seeds differ twice as much as the items explain, a quarter of all
tables of 30 claims have a finding where no difference exists.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy.special import nctdtrinc, stdtr, stdtrit
from torch import Tensor

from mtcon_ray.evaluation.predictions import LabelPredictions, kind_of
from mtcon_ray.evaluation.scores import resampled_counts, weighted_scores

RESAMPLES = 1000
SHARES = (0.025, 0.975)  # quantiles of a 95 % percentile interval
LEVEL = 0.05  # of the tests, two-sided
POWER = 0.8  # probability with which a test finds a `detectable` difference
# Fixed seeds of the resamples: the same trainings have the same intervals in every table.
ITEMS_SEED, SEEDS_SEED = 0, 1

Verdict = Literal["holds", "does not hold", "undecided"]


class Estimate(NamedTuple):
    """The variance of a training's score over seeds, or the deviation of a difference.

    `freedom` are the degrees of freedom with which it was estimated.
    """

    value: float
    freedom: float


class Interval(NamedTuple):
    """A mean over seeds, or a difference of two means, and its 95 % interval.

    `over_seeds` is False with a single seed: the interval then only covers the choice of items.
    """

    value: float
    low: float
    high: float
    over_seeds: bool


class Scores(NamedTuple):
    """A system's scores of a label by seed: on all test items, and on K resamples of them.

    score_S and drawn_SK are float64, in the order of seeds. rows are the items' rows in the label
    table, truth their true values, groups those of `LabelPredictions`.
    """

    seeds: tuple[int, ...]
    score_S: np.ndarray
    drawn_SK: np.ndarray
    rows: np.ndarray
    truth: np.ndarray
    groups: np.ndarray | None = None


def resampled_scores(
    by_seed: Mapping[int, LabelPredictions], resamples: int = RESAMPLES
) -> Scores | None:
    """Returns a label's scores by seed, or None if the seeds were tested on different items.

    The score comes from `scores.weighted_scores`.
    """
    seeds = tuple(sorted(by_seed))
    found = [by_seed[seed] for seed in seeds]
    first = found[0]
    if not all(_same_items(first, other) for other in found[1:]):
        return None
    n = len(first.rows)
    tiles = resampled_counts(n, resamples, ITEMS_SEED, first.groups)
    drawn_SK = np.concatenate([_scores(found, tile) for tile in tiles], axis=1)
    score_S = _scores(found, torch.ones(n, 1))[:, 0]
    if kind_of(first.truth) == "set":
        drawn_SK += (score_S - drawn_SK.mean(axis=1))[:, None]
    return Scores(seeds, score_S, drawn_SK, first.rows, first.truth, first.groups)


def mean_interval(scores: Scores) -> Interval:
    """Returns the mean over seeds with its interval."""
    draws_K = _means(scores.drawn_SK, SEEDS_SEED)
    return _interval(float(scores.score_S.mean()), draws_K, len(scores.seeds) > 1)


def score_interval(scores: Scores) -> Interval:
    """Returns the mean of scores such as accuracies with its interval, which 0 and 1 bound."""
    mean = mean_interval(scores)
    return mean._replace(low=max(mean.low, 0.0), high=min(mean.high, 1.0))


def difference(better: Scores, than: Scores) -> Interval | None:
    """Returns the paired difference of two means, or None if their test items differ.

    If both systems have the same seeds, seeds are resampled in pairs. A seed determines the
    initial weights, the order of the minibatches and the views, so shared effects of both
    trainings cancel. Without shared effects, pairing does no harm. Otherwise each system's seeds
    are resampled independently.
    """
    if not _same_items(better, than):
        return None
    value = float(better.score_S.mean() - than.score_S.mean())
    over_seeds = min(len(better.seeds), len(than.seeds)) > 1
    return _interval(value, _differences(better, than), over_seeds)


def seed_variance(better: Scores, than: Scores) -> Estimate | None:
    """Returns the variance of a training over seeds, from a difference, or None with single seeds.

    It is half the variance of the differences of paired seeds. Without pairs it is the mean of
    both systems, weighted by their shares in the variance of the difference.
    """
    sides = [better.score_S, than.score_S]
    if better.seeds == than.seeds:
        sides = [better.score_S - than.score_S]
    sides = [v_S for v_S in sides if len(v_S) > 1]
    if not sides:
        return None
    parts = (Estimate(float(v_S.var(ddof=1)) / len(v_S), len(v_S) - 1) for v_S in sides)
    whole = summed(*parts)
    return Estimate(whole.value / _per_training(better, than), whole.freedom)


def summed(*parts: Estimate) -> Estimate:
    """Returns the sum of independent variances.

    The degrees of freedom are Satterthwaite's (1946, "An approximate distribution of estimates of
    variance components").
    """
    value = sum(part.value for part in parts)
    squares = sum(part.value**2 / part.freedom for part in parts)
    return Estimate(value, value**2 / squares if squares else math.inf)


def standard_error(better: Scores, than: Scores, least: Estimate | None = None) -> Estimate:
    """Returns the deviation of the paired difference of two means, with its degrees of freedom.

    The variance is the sum of the bootstrap's over U test items or groups, with U - 1 degrees of
    freedom, and of the variance over seeds. The deviation over items is at least the change of a
    score by a single item, and infinite for a single group, which says nothing about others. The
    variance over seeds is at least `least`, and the excess keeps its own degrees of freedom. The
    test items must be the same.
    """
    U = len(np.unique(better.rows if better.groups is None else better.groups))
    if U == 1:
        return Estimate(math.inf, math.inf)
    drawn_K = better.drawn_SK.mean(axis=0) - than.drawn_SK.mean(axis=0)
    drawn, change = float(drawn_K.var(ddof=1)) * U / (U - 1), len(better.rows) ** -2
    of_items = Estimate(max(drawn, change), U - 1)
    per, seeds = _per_training(better, than), seed_variance(better, than)
    if seeds is None:
        return Estimate(math.sqrt(of_items.value), of_items.freedom)
    if least is not None:
        seeds = summed(least, Estimate(max(0.0, seeds.value - least.value), seeds.freedom))
    variance, freedom = summed(of_items, Estimate(seeds.value * per, seeds.freedom))
    return Estimate(math.sqrt(variance), freedom)


def p_value(gap: float, error: Estimate) -> float:
    """Returns the two-sided p of a difference's distance from a margin, by Student's t."""
    if error.value == 0:
        return float(gap == 0)
    return 2 * float(stdtr(error.freedom, -abs(gap) / error.value))


def detectable(error: Estimate, num_tests: int) -> float:
    """Returns the true difference found with 80 % power by each of `num_tests` tests.

    The level is LEVEL / num_tests, as for the smallest p in Holm's correction.

    >>> round(detectable(Estimate(0.01, math.inf), 1), 4)
    0.028
    """
    beyond = stdtrit(error.freedom, 1 - LEVEL / (2 * num_tests))
    # The noncentral t distribution with probability POWER beyond this point.
    return error.value * float(nctdtrinc(error.freedom, 1 - POWER, beyond))


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p values corrected for their number m, in the given order.

    Accept all statements with a corrected p of at most LEVEL. The probability of any chance finding
    among them is then at most LEVEL, however they depend on each other. The i-th smallest p is
    multiplied by m - i + 1, and made no smaller than the p before (Holm 1979, "A simple
    sequentially rejective multiple test procedure").

    >>> holm([0.01, 0.04, 0.03]), holm([0.7, 0.6])
    ([0.03, 0.06, 0.06], [1.0, 1.0])
    """
    corrected, least = [0.0] * len(p_values), 0.0
    for i, place in enumerate(sorted(range(len(p_values)), key=lambda k: p_values[k])):
        least = max(least, min(1.0, (len(p_values) - i) * p_values[place]))
        corrected[place] = least
    return corrected


def judge(difference: Interval, p: float, margin: float = 0.0) -> Verdict:
    """Returns whether a difference is above a margin, or "undecided".

    `p` tests the difference against the margin and is corrected for other claims. Above LEVEL the
    claim is undecided, otherwise the difference itself decides.
    """
    if p > LEVEL:
        return "undecided"
    return "holds" if difference.value > margin else "does not hold"


def _same_items(a: LabelPredictions | Scores, b: LabelPredictions | Scores) -> bool:
    one, other = ([np.asarray(part) for part in (x.rows, x.truth, x.groups)] for x in (a, b))
    return all(map(np.array_equal, one, other))


def _scores(found: list[LabelPredictions], counts_nK: Tensor) -> np.ndarray:
    """Returns the score of each training under K weightings of the n items, float64 [S, K]."""
    kind, truth = kind_of(found[0].truth), torch.from_numpy(found[0].truth)
    predicted = [torch.from_numpy(each.predicted) for each in found]
    return torch.stack([weighted_scores(kind, p, truth, counts_nK) for p in predicted]).numpy()


def _per_training(better: Scores, than: Scores) -> float:
    """Returns the difference's variance over seeds for a variance of 1 of each training."""
    return sum(1 / len(each.seeds) for each in (better, than) if len(each.seeds) > 1)


def _differences(better: Scores, than: Scores) -> np.ndarray:
    """Returns the difference of the two means in each of K resamples, [K]."""
    if better.seeds == than.seeds:
        return _means(better.drawn_SK - than.drawn_SK, SEEDS_SEED)
    return np.asarray(_means(better.drawn_SK, SEEDS_SEED) - _means(than.drawn_SK, SEEDS_SEED + 1))


def _means(drawn_SK: np.ndarray, seed: int) -> np.ndarray:
    """Returns the mean over S seeds drawn with replacement, in each of K resamples: [K].

    Deviations from the mean over all seeds are scaled by sqrt(S / (S - 1)).
    """
    S, K = drawn_SK.shape
    mean_K = drawn_SK.mean(axis=0)
    if S == 1:
        return np.asarray(mean_K)
    times_KS = np.random.default_rng(seed).multinomial(S, [1 / S] * S, size=K)
    drawn_K = np.einsum("ks,sk->k", times_KS / S, drawn_SK)
    return np.asarray(mean_K + math.sqrt(S / (S - 1)) * (drawn_K - mean_K))


def _interval(value: float, draws_K: np.ndarray, over_seeds: bool) -> Interval:
    low, high = np.quantile(draws_K, SHARES)
    return Interval(value, float(low), float(high), over_seeds)
