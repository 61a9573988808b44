"""Retrieval scores over seeds and resampled queries."""

import numpy as np
import torch

from mtcon_ray.evaluation.intervals import ITEMS_SEED, RESAMPLES, Scores
from mtcon_ray.evaluation.scores import resampled_counts


def query_scores(
    by_seed: dict[int, np.ndarray],
    rows: np.ndarray,
    truth: np.ndarray,
    groups: np.ndarray | None = None,
) -> Scores:
    """Returns the mean over queries by seed, and in the resamples of the queries.

    Each array holds a value per query, float64 [n], NaN for uncounted queries, which are the same
    for each seed. Whole groups of queries are drawn, int64 [n], by default each query is alone.
    """
    seeds = tuple(sorted(by_seed))
    value_Sn = np.stack([by_seed[seed] for seed in seeds])
    counted = ~np.isnan(value_Sn[0])
    value_Sn = value_Sn[:, counted]
    own = None if groups is None else groups[counted]
    counts = resampled_counts(int(counted.sum()), RESAMPLES, ITEMS_SEED, own)
    counts_nK = torch.cat(list(counts), dim=1).double().numpy()
    drawn_SK = value_Sn @ counts_nK / counts_nK.sum(axis=0)
    return Scores(seeds, value_Sn.mean(axis=1), drawn_SK, rows[counted], truth[counted], own)
