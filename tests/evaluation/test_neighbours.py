"""Test of the weighted k-nearest-neighbour vote."""

import math

import pytest
import torch
import torch.nn.functional as F

from mtcon_ray.evaluation import neighbours
from mtcon_ray.evaluation.neighbours import TEMPERATURE, neighbours_correct
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.spec.problem import MISSING


def random_items(num: int, seed: int) -> LabelledFeatures:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (num,), generator=generator)
    labels[::6] = MISSING
    x_ND = torch.randn(num, 6, generator=generator) + torch.eye(6)[labels.clamp(min=0)]
    return LabelledFeatures(x_ND, {"shape": labels})


@pytest.mark.parametrize("portion", [2**24, 100])
@pytest.mark.parametrize("k", [1, 5, 500])
def test_votes_are_those_of_a_loop(k: int, portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes equal those of a loop over items, also with k larger than the number of items."""
    monkeypatch.setattr(neighbours, "MOST_SIMILARITIES", portion)
    train, asked = random_items(60, 0), random_items(40, 1)
    known = [i for i in range(60) if train.labels["shape"][i] != MISSING]
    unit_MD, unit_ND = (F.normalize(x.features.double(), dim=1) for x in (asked, train))
    cosine_MN, expected = (unit_MD @ unit_ND.T).tolist(), []
    for cosine_N, truth in zip(cosine_MN, asked.labels["shape"].tolist(), strict=True):
        votes = [0.0] * 4
        for i in sorted(known, key=cosine_N.__getitem__, reverse=True)[:k]:
            votes[int(train.labels["shape"][i])] += math.exp(cosine_N[i] / TEMPERATURE)
        if truth != MISSING:
            expected.append(votes.index(max(votes)) == truth)
    assert neighbours_correct("shape", train, asked, 4, k).tolist() == expected
    assert 0 < sum(expected) < len(expected)
