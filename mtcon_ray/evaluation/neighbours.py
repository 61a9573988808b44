"""Evaluations without training: a vote of the nearest neighbours, and retrieval.

In retrieval each measured item is a query for the other items of its class.
"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.spec.problem import MISSING

TEMPERATURE = 0.07
TOP = (1, 5, 10)
# Largest number of cosines in memory at once, 8 bytes each.
MOST_COSINES = 2**22
# Cosines that agree in these binary digits are equal.
DIGITS = 30
HIDDEN = torch.iinfo(torch.int64).min  # a key behind all others


def neighbours_correct(
    label: str, train: LabelledFeatures, measured: LabelledFeatures, num_classes: int, k: int
) -> Tensor:
    """Returns True for each item of `measured` with a correct vote of its k nearest neighbours.

    The result is bool [n]. Items without a known label are left out, in `train` too. Neighbours are
    nearest by cosine similarity of the features and vote with weight exp(cosine / 0.07): Wu et al.
    2018, arXiv:1805.01978, section 3.4. If `train` has fewer than k items, all vote.
    """
    known, asked = train.known(label), measured.known(label)
    near_ND = F.normalize(known.features.double(), dim=1)
    portion = max(1, MOST_COSINES // len(near_ND))
    voted = []
    for some_nD in F.normalize(asked.features.double(), dim=1).split(portion):
        cosine_nk, index_nk = (some_nD @ near_ND.T).topk(min(k, len(near_ND)), dim=1)
        votes_nC = cosine_nk.new_zeros(len(some_nD), num_classes)
        votes_nC.scatter_add_(1, known.labels[label][index_nk], (cosine_nk / TEMPERATURE).exp())
        voted.append(votes_nC.argmax(dim=1))
    return torch.cat(voted) == asked.labels[label]


def retrieval(z_ND: Tensor, labels: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """Returns the scores of each item as a query, float64 [N], by label and name.

    A label is int64 [N], MISSING where unknown. For each label the other known items are ranked by
    cosine similarity, equal items in their order. R is the number of other items of the query's
    class. Unknown items, and the only item of a class, have NaN in all scores.

    - recall_at_1, recall_at_5, recall_at_10: 1 if an item of the class is among the nearest
    - r_precision: the share of the class among the R nearest
    - map_at_r: the mean over ranks to R of the precision at items of the class, else of 0
      (Musgrave et al. 2020, "A metric learning reality check", arXiv:2003.08505, section 3.2)

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> found = retrieval(z, {"a": torch.tensor([0, 0, 1, 0])})
    >>> found["a"]["map_at_r"].round(decimals=3).tolist()
    [1.0, 1.0, nan, 0.25]
    """
    unit_ND, item_N = F.normalize(z_ND.double(), dim=1), torch.arange(len(z_ND), device=z_ND.device)
    parts: dict[str, list[dict[str, Tensor]]] = {label: [] for label in labels}
    for query_n in item_N.split(max(1, MOST_COSINES // len(z_ND))):
        cosine_nN = unit_ND[query_n] @ unit_ND.T
        # A whole number of cosine and item, because topk leaves the order of equal values open.
        key_nN = (cosine_nN * 2**DIGITS).round().long() * 2**32 - item_N
        key_nN[item_N[: len(query_n)], query_n] = HIDDEN
        for label, truth_N in labels.items():
            parts[label].append(_scores(key_nN, query_n, truth_N))
    return {
        label: {name: torch.cat([part[name] for part in found]) for name in found[0]}
        for label, found in parts.items()
    }


def _scores(key_nN: Tensor, query_n: Tensor, truth_N: Tensor) -> dict[str, Tensor]:
    """Returns the scores of n queries. The larger a key, the nearer is its item."""
    known_N, truth_n = truth_N != MISSING, truth_N[query_n]
    size_C = truth_N[known_N].bincount()
    size_n = (size_C[truth_n] - 1).where(truth_n != MISSING, 0)
    # Not all others: none behind the R nearest counts, and sorting takes most of the time.
    K = min(max(*TOP, int(size_C.max()) - 1), int(known_N.sum()) - 1)
    nearest_nK = -key_nN.where(known_N, HIDDEN).topk(K, dim=1).values % 2**32
    rank_K = torch.arange(1, K + 1, device=key_nN.device)
    hit_nK = (truth_N[nearest_nK] == truth_n[:, None]).double()
    near_nK = hit_nK * (rank_K <= size_n[:, None])
    scores = {f"recall_at_{k}": hit_nK[:, :k].sum(dim=1).clamp(max=1) for k in TOP}
    scores["r_precision"] = near_nK.sum(dim=1) / size_n
    scores["map_at_r"] = (near_nK * hit_nK.cumsum(dim=1) / rank_K).sum(dim=1) / size_n
    return {name: score_n.where(size_n > 0, torch.nan) for name, score_n in scores.items()}
