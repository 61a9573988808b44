"""Weighted k-nearest-neighbour classification, an evaluation without training."""

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.evaluation.probe import LabelledFeatures

TEMPERATURE = 0.07
# Largest number of cosines in memory at once, 8 bytes each.
MOST_SIMILARITIES = 2**24


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
    portion = max(1, MOST_SIMILARITIES // len(near_ND))
    voted = []
    for some_nD in F.normalize(asked.features.double(), dim=1).split(portion):
        cosine_nk, index_nk = (some_nD @ near_ND.T).topk(min(k, len(near_ND)), dim=1)
        votes_nC = cosine_nk.new_zeros(len(some_nD), num_classes)
        votes_nC.scatter_add_(1, known.labels[label][index_nk], (cosine_nk / TEMPERATURE).exp())
        voted.append(votes_nC.argmax(dim=1))
    return torch.cat(voted) == asked.labels[label]
