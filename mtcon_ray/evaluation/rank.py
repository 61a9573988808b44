"""Effective rank of features, a measure of an encoder without labels."""

import torch
from torch import Tensor

from mtcon_ray.evaluation.probe import finite

# Epsilon of the source's equation 1, for logarithms of zero.
EPSILON = 1e-7


def rankme(features_ND: Tensor) -> float:
    """Returns the effective rank of features divided by their width D, a fraction in [0, 1].

    The effective rank is the exponential of the entropy of the singular values, normalised to sum
    1. Garrido et al. 2023, arXiv:2210.02885, eq. 1, which is of the embeddings of a projection head
    and is not divided. With N < D features the fraction is at most N / D. It is 1 / D if all
    features are equal, and 0 if all are zero.

    Raises DivergedError if a feature is not finite.
    """
    sigma_K = torch.linalg.svdvals(finite(features_ND))
    total = sigma_K.sum()
    if total == 0:
        return 0.0
    share_K = sigma_K / total + EPSILON
    rank = torch.exp(-(share_K * share_K.log()).sum()).item()
    return min(1.0, float(rank) / features_ND.shape[1])
