"""Bootstrap over test items: the standard deviation of an accuracy, and resample counts.

Source: the reported deviations of MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712) are those of
1000 resamples of the test set.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

# Largest number of counts in memory at once: 4 bytes each, and 8 more while they are drawn.
MOST_COUNTS = 2**23


def bootstrap_std(correct: Tensor, resamples: int, seed: int) -> float:
    """Returns the bootstrap standard deviation of the accuracy, a fraction.

    correct is bool [n], n > 0. Each of the `resamples` resamples draws n items with replacement.
    Its accuracy only depends on the number of correct items among them, which is binomial: drawing
    that number has the same distribution as drawing items and takes microseconds. With many
    resamples the result tends to sqrt(p (1 - p) / n).
    """
    n = len(correct)
    assert n > 0, "no item to resample"
    right = int(correct.sum())
    draws_K2 = np.random.default_rng(seed).multinomial(n, [1 - right / n, right / n], resamples)
    accuracy_K = draws_K2 @ np.array([0.0, 1.0]) / n
    return float(accuracy_K.std(ddof=1))


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
