"""Mean cosines of positive and random pairs, against sums over all pairs of rows."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.numeric import Compared
from mtcon_ray.losses.positives import EqualLabel, LabelSets, OwnView, Relation

LABELS = torch.tensor([0, 1, 0, -1, 2])
SETS = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 1], [-1, -1, -1], [1, 1, 1]])


def rows(seed: int, num_items: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_items, 3, 4, generator=generator, dtype=torch.float64)


def weight(kind: str, a: int, b: int) -> float:
    """Returns the weight of a pair of different rows, one of item a and one of item b."""
    if kind == "own":
        return float(a == b)
    if kind == "labels":
        return float(LABELS[a] == LABELS[b] != -1)
    if -1 in (int(SETS[a, 0]), int(SETS[b, 0])):
        return 0.0
    jaccard = int((SETS[a] & SETS[b]).sum()) / int((SETS[a] | SETS[b]).sum())
    return jaccard if jaccard >= 0.3 else 0.0


@pytest.mark.parametrize("kind", ["own", "labels", "sets"])
@pytest.mark.parametrize("two_sided", [False, True])
def test_means_are_those_over_all_pairs(kind: str, two_sided: bool) -> None:
    relations: dict[str, Relation] = {
        "own": OwnView(),
        "labels": EqualLabel(LABELS),
        "sets": LabelSets(SETS, threshold=0.3),
    }
    relation = relations[kind]
    z_BVD = rows(0)
    other_BVD = rows(1) if two_sided else z_BVD
    found_positive, found_random = Compared(z_BVD, other_BVD, relation).cosines()
    z_ND, other_ND = (F.normalize(x, dim=2).flatten(0, 1) for x in (z_BVD, other_BVD))
    positive = random = weights = pairs = 0.0
    for i in range(15):
        for j in range(15):
            cosine = float(z_ND[i] @ other_ND[j])
            a, b = i // 3, j // 3
            if i != j:
                positive += weight(kind, a, b) * cosine
                weights += weight(kind, a, b)
            if a != b:
                random += cosine
                pairs += 1
    assert found_positive.item() == pytest.approx(positive / weights, rel=1e-9)
    assert found_random.item() == pytest.approx(random / pairs, rel=1e-9)


def test_a_batch_without_such_pairs_has_no_number() -> None:
    z_BVD = rows(0, 1)
    found = Compared(z_BVD, z_BVD, EqualLabel(torch.tensor([-1]))).cosines()
    assert not any(mean.isfinite() for mean in found)
