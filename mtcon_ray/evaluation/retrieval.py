"""Retrieval among the measured items: each item is a query for the other items of its class."""

from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Tensor

TOP = (1, 5, 10)
# Number of queries ranked at once.
PORTION = 512


def retrieval(z_ND: Tensor, truth_N: Tensor) -> dict[str, Tensor]:
    """Returns the scores of each item as a query, float64 [N], by name.

    The other items are ranked by cosine similarity, equal items in their order. R is the number of
    other items of the query's class. The only item of a class has NaN in all scores.

    - recall_at_1, recall_at_5, recall_at_10: 1 if an item of the class is among the nearest
    - r_precision: the share of the class among the R nearest
    - map_at_r: the mean over ranks to R of the precision at items of the class, else of 0
      (Musgrave et al. 2020, "A metric learning reality check", arXiv:2003.08505, section 3.2)

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> retrieval(z, torch.tensor([0, 0, 1, 0]))["map_at_r"].round(decimals=3).tolist()
    [1.0, 1.0, nan, 0.25]
    """
    unit_ND, item_N = F.normalize(z_ND.double(), dim=1), torch.arange(len(z_ND), device=z_ND.device)
    found = defaultdict(list)
    for query_n in item_N.split(PORTION):
        cosine_nN = unit_ND[query_n] @ unit_ND.T
        cosine_nN[item_N[: len(query_n)], query_n] = -torch.inf  # not the query itself
        order_nN = cosine_nN.argsort(dim=1, descending=True, stable=True)[:, :-1]
        hit_nN = (truth_N[order_nN] == truth_N[query_n, None]).double()
        size_n, rank_N = hit_nN.sum(dim=1), item_N[1:]
        near_nN = hit_nN * (rank_N <= size_n[:, None])
        scores = {f"recall_at_{k}": hit_nN[:, :k].sum(dim=1).clamp(max=1) for k in TOP}
        scores["r_precision"] = near_nN.sum(dim=1) / size_n
        scores["map_at_r"] = (near_nN * hit_nN.cumsum(dim=1) / rank_N).sum(dim=1) / size_n
        for name, score_n in scores.items():
            found[name].append(score_n.where(size_n > 0, torch.nan))
    return {name: torch.cat(parts) for name, parts in found.items()}
