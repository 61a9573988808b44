"""Mean cosines of positive and random pairs, against sums over all pairs of rows."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.losses.numeric import Compared
from mtcon_ray.losses.positives import EqualLabel
from tests.losses.cases import LABELS, RELATIONS, weight_of


def rows(seed: int, num_items: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_items, 3, 4, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("kind", RELATIONS)
@pytest.mark.parametrize("two_sided", [False, True])
def test_means_are_those_over_all_pairs(kind: str, two_sided: bool) -> None:
    relation = EqualLabel(LABELS[0]) if kind == "equal label" else RELATIONS[kind]()
    z_BVD = rows(0)
    other_BVD = rows(1) if two_sided else z_BVD
    found_positive, found_random = Compared(z_BVD, other_BVD, relation).cosines()
    z_ND, other_ND = (F.normalize(x, dim=2).flatten(0, 1) for x in (z_BVD, other_BVD))
    cosine_NN, item_N = z_ND @ other_ND.T, [n // 3 for n in range(18)]
    weights = [[weight_of(kind, 0, a, b) or 0.0 for b in item_N] for a in item_N]
    weight_NN = torch.tensor(weights, dtype=torch.float64)
    weight_NN.fill_diagonal_(0)
    positive = (weight_NN * cosine_NN).sum() / weight_NN.sum()
    assert found_positive.item() == pytest.approx(positive.item(), rel=1e-9)
    is_random_NN = torch.tensor([[a != b for b in item_N] for a in item_N])
    assert found_random.item() == pytest.approx(cosine_NN[is_random_NN].mean().item(), rel=1e-9)


def test_a_batch_without_such_pairs_has_no_number() -> None:
    z_BVD = rows(0, 1)
    found = Compared(z_BVD, z_BVD, EqualLabel(torch.tensor([-1]))).cosines()
    assert not any(mean.isfinite() for mean in found)
