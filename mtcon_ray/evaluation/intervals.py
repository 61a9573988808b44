"""95 % intervals of test scores over training seeds and test items, and of their differences.

Hierarchical bootstrap: each of K draws takes the test items with replacement, the same ones for
all seeds and systems, because they share the test set; then the seeds with replacement. So what an
item does to all systems cancels in a difference. The mean over S drawn seeds varies by (S - 1) / S
of what it should, which is made up for; with two or three seeds their spread is hardly known all
the same, and the interval is then too narrow where seeds differ more than items do. Where they
differ less it is a little too wide: what is particular to one seed on one item counts thrice (Owen
2007, "The pigeonhole bootstrap", arXiv:0712.1111).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.evaluation.average_precision import weighted_average_precision
from mtcon_ray.evaluation.bootstrap import resampled_counts
from mtcon_ray.evaluation.predictions import LabelPredictions
from mtcon_ray.evaluation.regression import weighted_r_squared

RESAMPLES = 1000
TILE = 128  # draws at once: average precision of 4,000 items takes half as long in the CPU's cache
SHARES = (0.025, 0.975)
ITEMS_SEED, SEEDS_SEED = 0, 1  # of the draws: every table shows the same intervals

Verdict = Literal["holds", "does not hold", "undecided"]


class Interval(NamedTuple):
    """A mean over seeds, or a difference of two, and its 95 % interval.

    `over_seeds` is False where there is one seed only: the interval then covers the items alone.
    """

    value: float
    low: float
    high: float
    over_seeds: bool


@dataclass(frozen=True)
class Scores:
    """One system's score of a label: on all test items, and on each of K draws of them."""

    seeds: tuple[int, ...]
    score_S: np.ndarray
    drawn_SK: np.ndarray
    rows: np.ndarray
    truth: np.ndarray


def resampled_scores(
    by_seed: Mapping[int, LabelPredictions], resamples: int = RESAMPLES
) -> Scores | None:
    """Returns a label's scores by seed; None where the seeds were measured on different items.

    It is the accuracy of classes, the tie-aware mean average precision of a set, R^2 of a number.
    """
    seeds = tuple(sorted(by_seed))
    found = [by_seed[seed] for seed in seeds]
    first = found[0]
    if not all(_same_items(first, other) for other in found[1:]):
        return None
    n = len(first.rows)
    once_n1 = torch.ones(n, 1)
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
    """Returns the paired difference of two means; None if they are of different items.

    Where both have the same seeds, seeds are drawn in pairs: a seed decides the first weights, the
    order of the minibatches and the views, so that what is equal of them cancels; if nothing is,
    pairs are as good as draws of each system's own, which are taken where the seeds differ.
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
    """Returns whether a difference is above the margin, as far as its interval tells."""
    if difference.low > margin:
        return "holds"
    return "does not hold" if difference.high <= margin else "undecided"


def _same_items(a: LabelPredictions | Scores, b: LabelPredictions | Scores) -> bool:
    numbers = a.truth.dtype.kind == "f"
    same_truth = np.array_equal(a.truth, b.truth, equal_nan=numbers)
    return np.array_equal(a.rows, b.rows) and same_truth


def _scores(found: list[LabelPredictions], counts_nK: Tensor) -> np.ndarray:
    """The score of each training in each of K weightings of the items, float64 [S, K]."""
    truth = torch.from_numpy(found[0].truth)
    predicted = [torch.from_numpy(each.predicted) for each in found]
    match found[0].kind:
        case "classes":
            right_Sn = torch.stack([each == truth for each in predicted]).float()
            score_SK = (right_Sn @ counts_nK).double() / counts_nK.sum(dim=0)
        case "set":
            each = [weighted_average_precision(p, truth, counts_nK).mean(dim=0) for p in predicted]
            score_SK = torch.stack(each).double()
        case "number":
            score_SK = torch.stack([weighted_r_squared(p, truth, counts_nK) for p in predicted])
    return score_SK.numpy()


def _means(drawn_SK: np.ndarray, seed: int) -> np.ndarray:
    """Means over S seeds drawn with replacement in each of K draws, [K]."""
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
