"""F1 of multi-label predictions, and the choice of decision thresholds.

scores_NL are logits and bits_NL uint8 of 0 and 1, UNKNOWN_BIT where unknown. Unknown bits are
ignored.
"""

import torch
from torch import Tensor

from mtcon_ray.evaluation.average_precision import ranked
from mtcon_ray.spec.problem import UNKNOWN_BIT


def best_thresholds(scores_NL: Tensor, bits_NL: Tensor) -> Tensor:
    """Returns the decision threshold with the highest F1 on these items for each label, [L].

    A threshold is half way between two successive scores, or the lowest score if all items are
    to be predicted positive. A label without positives gets 0, a probability of 0.5.
    """
    # The number of predicted positives is the rank of the last predicted positive.
    sorted_NL, has_NL, rank_NL = ranked(scores_NL, bits_NL)
    f1_NL = 2 * has_NL.cumsum(dim=0) / (rank_NL + has_NL.sum(dim=0))
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

    def f1(dim: tuple[int, ...]) -> Tensor:
        return 2 * right_NL[items].sum(dim) / either_NL[items].sum(dim).clamp(min=1)

    return {
        "micro": f1((0, 1)).item(),
        "macro": f1((0,)).mean().item(),
        "sample": f1((1,)).mean().item(),
    }
