"""Retrieval in an embedding space: recall at 1 and mean average precision at R of each query.

R is the number of other items of the query's class (Musgrave et al. 2020, "A metric learning
reality check", arXiv:2003.08505, section 3.2).
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.evaluation.bootstrap import resampled_counts
from mtcon_ray.evaluation.intervals import ITEMS_SEED, RESAMPLES, Scores

# Number of queries ranked at once.
PORTION = 512


def retrieval(z_nD: Tensor, truth_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns recall at 1 and average precision at R of each item as a query, float64 [n].

    The other items are ranked by cosine similarity. Items are of known classes. The only item of a
    class has NaN in both, because nothing can be found.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> retrieval(z, np.array([0, 0, 1, 0]))[1].round(3).tolist()
    [1.0, 1.0, nan, 0.25]
    """
    unit_nD, truth = F.normalize(z_nD.double(), dim=1), torch.from_numpy(truth_n)
    recalls, precisions = [], []
    for queries in torch.arange(len(unit_nD)).split(PORTION):
        cosine_qn = unit_nD[queries] @ unit_nD.T
        cosine_qn[torch.arange(len(queries)), queries] = -torch.inf  # not the query itself
        order_qn = cosine_qn.argsort(dim=1, descending=True, stable=True)
        hits_qn = (truth[order_qn] == truth[queries][:, None])[:, :-1].double()
        num_q = hits_qn.sum(dim=1)
        rank_n = torch.arange(1, hits_qn.shape[1] + 1)
        within_qn = rank_n <= num_q[:, None]
        precision_qn = hits_qn.cumsum(dim=1) / rank_n
        precisions.append((precision_qn * hits_qn * within_qn).sum(dim=1) / num_q)
        recalls.append(torch.where(num_q > 0, hits_qn[:, 0], torch.nan))
    return torch.cat(recalls).numpy(), torch.cat(precisions).numpy()


def query_scores(by_seed: dict[int, np.ndarray], rows: np.ndarray, truth: np.ndarray) -> Scores:
    """Returns the mean over queries by seed, and in the resamples of the queries.

    Each array holds a value per query, float64 [n], NaN for uncounted queries, which are the same
    for each seed.
    """
    seeds = tuple(sorted(by_seed))
    value_Sn = np.stack([by_seed[seed] for seed in seeds])
    counted = ~np.isnan(value_Sn[0])
    value_Sn = value_Sn[:, counted]
    counts = resampled_counts(int(counted.sum()), RESAMPLES, ITEMS_SEED)
    counts_nK = torch.cat(list(counts), dim=1).double().numpy()
    drawn_SK = value_Sn @ counts_nK / counts_nK.sum(axis=0)
    return Scores(seeds, value_Sn.mean(axis=1), drawn_SK, rows[counted], truth[counted])
