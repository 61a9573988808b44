"""How far an accuracy would move with another draw of the test items (METHODS 12.5)."""

import numpy as np
from torch import Tensor


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
