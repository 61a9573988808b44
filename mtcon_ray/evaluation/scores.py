"""Scores of predictions, such as mean average precision and F1, and their bootstrap.

The bootstrap takes the deviation of a score over resamples of the test items, as MSCon (Mu, Guttag
and Makar 2023, arXiv:2307.02712) does with 1000 resamples.

In the functions on label sets, scores_NL are real scores and bits_NL uint8 of 0 and 1, UNKNOWN_BIT
where unknown. For each label only the items where it is known are ranked.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.spec.problem import UNKNOWN_BIT

EPSILON = 1e-8
# Largest number of counts in memory at once: 4 bytes each, and 8 more while they are drawn.
MOST_COUNTS = 2**23
# Resamples scored at once. Average precision of 4,000 items takes half the time if a tile fits
# into the CPU's cache.
TILE = 128


def mean_average_precision(scores_NL: Tensor, bits_NL: Tensor) -> float:
    """Returns the mean over labels of `average_precisions`, a fraction."""
    return average_precisions(scores_NL, bits_NL).mean().item()


def average_precisions(scores_NL: Tensor, bits_NL: Tensor) -> Tensor:
    """Returns the non-interpolated average precision of each label, float64 [L].

    It is the sum of the precisions at each positive of the ranking, divided by the number of
    positives, as in the code of MultiSupCon (Zaigrajew and Zieba,
    github.com/WolodjaZ/MultiSupContrast). Equal scores share a rank, as in scikit-learn: otherwise
    equal features, such as a collapsed encoder's, would have any value by the order of the items. A
    label without positives has 0.
    """
    once_N1 = torch.ones(len(scores_NL), 1, dtype=torch.float64)
    return weighted_average_precision(scores_NL.cpu(), bits_NL.cpu(), once_N1)[:, 0]


def weighted_average_precision(scores_NL: Tensor, bits_NL: Tensor, weight_NK: Tensor) -> Tensor:
    """Returns the average precision [L, K] under K weightings of the items.

    weight_NK is how often each of N items counts in each weighting. All tensors on the CPU.
    """
    columns = zip(scores_NL.unbind(1), bits_NL.unbind(1), strict=True)
    return torch.stack([_weighted_label(*column, weight_NK) for column in columns])


def _weighted_label(scores_N: Tensor, bits_N: Tensor, weight_NK: Tensor) -> Tensor:
    """Returns a label's average precision in each weighting, [K]."""
    rows = (bits_N != UNKNOWN_BIT).nonzero()[:, 0]
    descending = scores_N[rows].argsort(descending=True, stable=True)
    rows = rows[descending]
    # A block is a run of equal scores. Precision is taken at the end of a positive's block: the
    # order within a block then does not matter.
    _, block_N = torch.unique_consecutive(scores_N[rows], return_inverse=True)
    end_N = torch.searchsorted(block_N, block_N, right=True) - 1
    # Only the weights of the P positives and the cumulative weight of all items are needed.
    place_P = (bits_N[rows] == 1).nonzero()[:, 0]
    hit_PK = weight_NK[rows[place_P]]
    hits_PK = hit_PK.cumsum(dim=0)
    last_P = torch.searchsorted(block_N[place_P], block_N[place_P], right=True) - 1
    total_PK = weight_NK[rows].cumsum(dim=0)[end_N[place_P]]
    precision_PK = hits_PK[last_P] / total_PK.clamp(min=1)
    return (precision_PK * hit_PK).sum(dim=0) / hit_PK.sum(dim=0).clamp(min=EPSILON)


def best_thresholds(scores_NL: Tensor, bits_NL: Tensor) -> Tensor:
    """Returns the decision threshold with the highest F1 on these items for each label, [L].

    A threshold is half way between two successive scores, or the lowest score if all items are
    to be predicted positive. A label without positives gets 0, a probability of 0.5.
    """
    # Unknown items come last, without a positive.
    masked_NL = scores_NL.masked_fill(bits_NL == UNKNOWN_BIT, -torch.inf)
    sorted_NL, order_NL = masked_NL.sort(dim=0, descending=True, stable=True)
    has_NL = (bits_NL == 1).gather(0, order_NL).double()
    # The number of predicted positives is the rank of the last predicted positive.
    rank_N1 = torch.arange(1, len(has_NL) + 1, device=has_NL.device)[:, None]
    f1_NL = 2 * has_NL.cumsum(dim=0) / (rank_N1 + has_NL.sum(dim=0))
    next_NL = torch.cat([sorted_NL[1:], torch.full_like(sorted_NL[:1], -torch.inf)])
    f1_NL = f1_NL.masked_fill(sorted_NL == next_NL, -1)  # no threshold separates equal scores
    cut_1L = f1_NL.argmax(dim=0, keepdim=True)
    above_L, below_L = sorted_NL.gather(0, cut_1L)[0], next_NL.gather(0, cut_1L)[0]
    middle_L = torch.where(below_L.isinf(), above_L, (above_L + below_L) / 2)
    return torch.where(has_NL.sum(dim=0) > 0, middle_L, 0)


def f1_scores(scores_NL: Tensor, bits_NL: Tensor, threshold_L: Tensor) -> dict[str, float]:
    """Returns F1 over all decisions (micro), averaged over labels (macro) and items (sample).

    threshold_L are logits. A score equal to its threshold is a positive prediction. F1 is 0 where
    there is neither a positive nor a positive prediction, as in scikit-learn. Items without a
    known label are left out.
    """
    is_known_NL = bits_NL != UNKNOWN_BIT
    predicted_NL = (scores_NL >= threshold_L) & is_known_NL
    has_NL = bits_NL == 1
    right_NL = predicted_NL & has_NL
    either_NL = predicted_NL.double() + has_NL.double()
    items = is_known_NL.any(dim=1)
    summed = {"micro": (0, 1), "macro": (0,), "sample": (1,)}
    return {
        mean: (2 * right_NL[items].sum(d) / either_NL[items].sum(d).clamp(min=1)).mean().item()
        for mean, d in summed.items()
    }


def weighted_scores(kind: Kind, predicted: Tensor, truth: Tensor, counts_nK: Tensor) -> Tensor:
    """Returns a label's score under K weightings of its n items, float64 [K].

    The score is the accuracy for classes, the mean average precision for a label set.
    counts_nK is how often each item counts. All tensors are on the CPU.
    """
    if kind == "set":
        return weighted_average_precision(predicted, truth, counts_nK).mean(dim=0).double()
    score_K = (predicted == truth).float() @ counts_nK
    return score_K.double() / counts_nK.sum(dim=0)


def score_std(kind: Kind, predicted: Tensor, truth: Tensor, resamples: int, seed: int) -> float:
    """Returns the bootstrap standard deviation of a label's score over its n items, all known.

    The score comes from `weighted_scores`. Each resample draws n items with replacement. The
    number of correct items in a resample is binomial, so the deviation of an accuracy p is exactly
    sqrt(p (1 - p) / n), without resamples.
    """
    if kind == "classes":
        share = (predicted == truth).double().mean().item()
        return math.sqrt(share * (1 - share) / len(truth))
    predicted, truth = predicted.cpu(), truth.cpu()
    counts = resampled_counts(len(truth), resamples, seed)
    scores = [weighted_scores(kind, predicted, truth, counts_nK) for counts_nK in counts]
    return torch.cat(scores).std().item()


def resampled_counts(
    n: int, resamples: int, seed: int, groups: np.ndarray | None = None
) -> Iterator[Tensor]:
    """Yields how often each of n items is drawn, float32 [n, K] on the CPU, K resamples at a time.

    Whole groups are drawn, as many as there are. `groups` is int64 [n], by default each item is
    alone. The tiles have `resamples` columns in total, and at most TILE each. At most MOST_COUNTS
    counts are in memory.
    """
    units, code_n = np.unique(np.arange(n) if groups is None else groups, return_inverse=True)
    generator = torch.Generator().manual_seed(seed)
    portion, U = max(1, MOST_COUNTS // n), len(units)
    for start in range(0, resamples, portion):
        K = min(portion, resamples - start)
        drawn_UK = torch.randint(U, (U, K), generator=generator)
        counts_UK = torch.zeros(U, K).scatter_add_(0, drawn_UK, torch.ones(1, 1).expand(U, K))
        # The columns of a tile are strided. A contiguous copy makes products faster.
        tiles = counts_UK[torch.from_numpy(code_n)].split(TILE, dim=1)
        yield from map(Tensor.contiguous, tiles)
