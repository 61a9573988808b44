"""Bootstrap over test items: scores of resamples, and their standard deviation.

Source: MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712) reports the deviations over 1000
resamples of the test set.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.evaluation.scores import weighted_average_precision, weighted_r_squared

# Largest number of counts in memory at once: 4 bytes each, and 8 more while they are drawn.
MOST_COUNTS = 2**23


def weighted_scores(kind: Kind, predicted: Tensor, truth: Tensor, counts_nK: Tensor) -> Tensor:
    """Returns a label's score under K weightings of its n items, float64 [K].

    The score is the accuracy for classes, the tie-aware mean average precision for a label set and
    R^2 for a number. counts_nK is how often each item counts. All tensors are on the CPU.
    """
    match kind:
        case "classes":
            score_K = (predicted == truth).float() @ counts_nK
            return score_K.double() / counts_nK.sum(dim=0)
        case "set":
            return weighted_average_precision(predicted, truth, counts_nK).mean(dim=0).double()
        case "number":
            return weighted_r_squared(predicted, truth, counts_nK)


def score_std(kind: Kind, predicted: Tensor, truth: Tensor, resamples: int, seed: int) -> float:
    """Returns the bootstrap standard deviation of a label's score over its n items, all known.

    The score comes from `weighted_scores`. Each resample draws n items with replacement.
    """
    if kind == "classes":
        return accuracy_std(predicted == truth, resamples, seed)
    predicted, truth = predicted.cpu(), truth.cpu()
    counts = resampled_counts(len(truth), resamples, seed)
    scores = [weighted_scores(kind, predicted, truth, counts_nK) for counts_nK in counts]
    return torch.cat(scores).std().item()


def accuracy_std(correct: Tensor, resamples: int, seed: int) -> float:
    """Returns the bootstrap standard deviation of the accuracy, a fraction. correct is bool [n].

    The accuracy of a resample depends on its number of correct items alone, which is binomial:
    drawing the number has the same distribution as drawing items and takes microseconds. With many
    resamples the result tends to sqrt(p (1 - p) / n).
    """
    n = len(correct)
    right = int(correct.sum())
    draws_K2 = np.random.default_rng(seed).multinomial(n, [1 - right / n, right / n], resamples)
    return float((draws_K2[:, 1] / n).std(ddof=1))


def resampled_counts(n: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """Yields how often each of n items is drawn, float32 [n, K] on the CPU, K resamples at a time.

    The portions have `resamples` columns in total, and at most MOST_COUNTS counts each.
    """
    generator = torch.Generator().manual_seed(seed)
    portion = max(1, MOST_COUNTS // n)
    for start in range(0, resamples, portion):
        K = min(portion, resamples - start)
        drawn_nK = torch.randint(n, (n, K), generator=generator)
        yield torch.zeros(n, K).scatter_add_(0, drawn_nK, torch.ones(1, 1).expand(n, K))
