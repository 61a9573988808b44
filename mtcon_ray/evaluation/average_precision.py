"""Mean average precision of multi-label predictions.

In all functions scores_NL are real scores and bits_NL uint8 of 0 and 1, UNKNOWN_BIT where unknown.
For each label only the items where it is known are ranked.
"""

import torch
from torch import Tensor

from mtcon_ray.spec.problem import UNKNOWN_BIT

EPSILON = 1e-8  # as in MultiSupCon's code


def mean_average_precision(scores_NL: Tensor, bits_NL: Tensor) -> float:
    """Returns the mean over labels of the non-interpolated average precision, a fraction.

    Average precision is the sum of the precisions at each positive of the ranking, divided by the
    number of positives + 1e-8. A label without positives scores 0. Equal scores are ranked in the
    items' order. Source: the code of MultiSupCon (Zaigrajew and Zieba,
    github.com/WolodjaZ/MultiSupContrast).
    """
    _, has_NL, rank_NL = ranked(scores_NL, bits_NL)
    precision_NL = has_NL.cumsum(dim=0) / rank_NL.clamp(min=1)
    precision_L = (precision_NL * has_NL).sum(dim=0) / (has_NL.sum(dim=0) + EPSILON)
    return precision_L.mean().item()


def ranked(scores_NL: Tensor, bits_NL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns each label's scores in descending order, its positives and ranks in the same order.

    All are [N, L]. Positives are 0 or 1, and ranks count known items from 1, both in float64.
    Unknown items come last, with score -inf and no positive, so they change no precision. Equal
    scores stay in the items' order.
    """
    is_known_NL = bits_NL != UNKNOWN_BIT
    masked_NL = scores_NL.masked_fill(~is_known_NL, -torch.inf)
    sorted_NL, order_NL = masked_NL.sort(dim=0, descending=True, stable=True)
    has_NL = (bits_NL == 1).gather(0, order_NL).double()
    return sorted_NL, has_NL, is_known_NL.gather(0, order_NL).double().cumsum(dim=0)


def tie_aware_average_precision(scores_NL: Tensor, bits_NL: Tensor) -> Tensor:
    """Returns the average precision of each label, float64 [L]. Equal scores share a rank.

    Equals scikit-learn's average_precision_score, and is 0 for a label without positives.
    """
    once_N1 = torch.ones(len(scores_NL), 1, dtype=torch.float64)
    return weighted_average_precision(scores_NL.cpu(), bits_NL.cpu(), once_N1)[:, 0]


def weighted_average_precision(scores_NL: Tensor, bits_NL: Tensor, weight_NK: Tensor) -> Tensor:
    """Returns the tie-aware average precision [L, K] under K weightings of the items.

    weight_NK is how often each of N items counts in each weighting. All tensors on the CPU.
    """
    columns = zip(scores_NL.unbind(1), bits_NL.unbind(1), strict=True)
    return torch.stack(
        [_weighted_label(scores_N, bits_N, weight_NK) for scores_N, bits_N in columns]
    )


def _weighted_label(scores_N: Tensor, bits_N: Tensor, weight_NK: Tensor) -> Tensor:
    """Returns a label's tie-aware average precision in each weighting, [K]."""
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
