"""95 % confidence intervals of test scores and their differences, over seeds and test items.

A hierarchical bootstrap. Each of K resamples draws the test items with replacement, the same items
for all seeds and systems because they share the test set, then the seeds with replacement. The
effect of an item on all systems therefore cancels in a difference.

The bootstrap variance of a mean over S seeds is too small by the factor (S - 1) / S; deviations
over seeds are scaled up to correct this. With two or three seeds their spread remains poorly
estimated: the interval is too narrow if seeds vary more than items. If they vary less, it is
slightly too wide, because the interaction of seeds and items is counted three times (Owen 2007,
"The pigeonhole bootstrap", arXiv:0712.1111).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.evaluation.bootstrap import resampled_counts, weighted_scores
from mtcon_ray.evaluation.predictions import LabelPredictions

RESAMPLES = 1000
# Resamples that are scored at once. Average precision of 4,000 items takes half the time if a
# tile fits into the CPU's cache.
TILE = 128
SHARES = (0.025, 0.975)  # quantiles of a 95 % percentile interval
# Fixed seeds of the resamples, so that the same trainings have the same intervals in every table.
ITEMS_SEED, SEEDS_SEED = 0, 1

Verdict = Literal["holds", "does not hold", "undecided"]


class Interval(NamedTuple):
    """A mean over seeds, or a difference of two means, and its 95 % interval.

    `over_seeds` is False with a single seed: the interval then only covers the choice of items.
    """

    value: float
    low: float
    high: float
    over_seeds: bool


@dataclass(frozen=True)
class Scores:
    """One system's scores of a label by seed: on all test items, and on K resamples of them.

    score_S and drawn_SK are float64, in the order of seeds. rows are the items' rows in the label
    table, truth their true values.
    """

    seeds: tuple[int, ...]
    score_S: np.ndarray
    drawn_SK: np.ndarray
    rows: np.ndarray
    truth: np.ndarray


def resampled_scores(
    by_seed: Mapping[int, LabelPredictions], resamples: int = RESAMPLES
) -> Scores | None:
    """Returns a label's scores by seed, or None if the seeds were tested on different items.

    The score is that of `bootstrap.weighted_scores`.
    """
    seeds = tuple(sorted(by_seed))
    found = [by_seed[seed] for seed in seeds]
    first = found[0]
    if not all(_same_items(first, other) for other in found[1:]):
        return None
    n = len(first.rows)
    once_n1 = torch.ones(n, 1)
    # The columns of a tile are strided in its portion; a contiguous copy makes products faster.
    counts = (
        tile.contiguous()
        for portion in resampled_counts(n, resamples, ITEMS_SEED)
        for tile in portion.split(TILE, dim=1)
    )
    drawn = [_scores(found, tile) for tile in counts]
    score_S = _scores(found, once_n1)[:, 0]
    return Scores(seeds, score_S, np.concatenate(drawn, axis=1), first.rows, first.truth)


def mean_interval(scores: Scores) -> Interval:
    """Returns the mean over seeds with its interval."""
    draws_K = _means(scores.drawn_SK, SEEDS_SEED)
    return _interval(float(scores.score_S.mean()), draws_K, len(scores.seeds) > 1)


def difference(better: Scores, than: Scores) -> Interval | None:
    """Returns the paired difference of two means, or None if their test items differ.

    If both systems have the same seeds, seeds are resampled in pairs. A seed determines the
    initial weights, the order of the minibatches and the views, so effects that both trainings
    share cancel; without shared effects, pairing does no harm. Otherwise each system's seeds are
    resampled independently.
    """
    if not _same_items(better, than):
        return None
    value = float(better.score_S.mean() - than.score_S.mean())
    over_seeds = min(len(better.seeds), len(than.seeds)) > 1
    if better.seeds == than.seeds:
        draws_K = _means(better.drawn_SK - than.drawn_SK, SEEDS_SEED)
    else:
        draws_K = _means(better.drawn_SK, SEEDS_SEED) - _means(than.drawn_SK, SEEDS_SEED + 1)
    return _interval(value, draws_K, over_seeds)


def verdict(difference: Interval, margin: float = 0.0) -> Verdict:
    """Returns "holds" if the whole interval lies above the margin, "does not hold" if none of it.

    Otherwise returns "undecided".
    """
    if difference.low > margin:
        return "holds"
    return "does not hold" if difference.high <= margin else "undecided"


def _same_items(a: LabelPredictions | Scores, b: LabelPredictions | Scores) -> bool:
    numbers = a.truth.dtype.kind == "f"
    same_truth = np.array_equal(a.truth, b.truth, equal_nan=numbers)
    return np.array_equal(a.rows, b.rows) and same_truth


def _scores(found: list[LabelPredictions], counts_nK: Tensor) -> np.ndarray:
    """Returns the score of each training under K weightings of the n items, float64 [S, K]."""
    truth = torch.from_numpy(found[0].truth)
    each = [
        weighted_scores(one.kind, torch.from_numpy(one.predicted), truth, counts_nK)
        for one in found
    ]
    return torch.stack(each).numpy()


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
