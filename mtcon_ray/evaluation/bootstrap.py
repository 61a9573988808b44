"""How far an accuracy would move with another draw of the test items (METHODS 12.5)."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

# Counts that are held at a time, 4 bytes each and 8 more while they are drawn.
MOST_COUNTS = 2**23


def bootstrap_std(correct: Tensor, resamples: int, seed: int) -> float:
    """Standard deviation of the accuracy over `resamples` draws of n items with replacement.

    correct is bool [n]. A draw's accuracy depends only on how often a right item was drawn, so
    each draw is one multinomial over {wrong, right} instead of over the n items: the same
    distribution, in microseconds. With many resamples it tends to sqrt(p (1 - p) / n).
    """
    n = len(correct)
    assert n > 0, "no item to resample"
    right = int(correct.sum())
    draws_K2 = np.random.default_rng(seed).multinomial(n, [1 - right / n, right / n], resamples)
    accuracy_K = draws_K2 @ np.array([0.0, 1.0]) / n
    return float(accuracy_K.std(ddof=1))


def resampled_counts(n: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """How often each of n items is drawn in each of K resamples, float32 [n, K] on the CPU.

    All resamples at once, or in portions that fit into memory.
    """
    generator = torch.Generator().manual_seed(seed)
    portion = max(1, MOST_COUNTS // n)
    for start in range(0, resamples, portion):
        K = min(portion, resamples - start)
        drawn_nK = torch.randint(n, (n, K), generator=generator)
        yield torch.zeros(n, K).scatter_add_(0, drawn_nK, torch.ones(1, 1).expand(n, K))
