"""The vote of the nearest items, and retrieval as in pytorch-metric-learning."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

from mtcon_ray.evaluation import neighbours
from mtcon_ray.evaluation.neighbours import TEMPERATURE, neighbours_correct, retrieval
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.spec.problem import MISSING

GENERATOR = torch.Generator().manual_seed(0)
N = 700


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
    monkeypatch.setattr(neighbours, "MOST_COSINES", portion)
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


def test_agrees_with_pytorch_metric_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some classes have fewer than ten items, and one has a single item, which does not count.

    The second label is unknown for some items, which are then neither queries nor found.
    """
    monkeypatch.setattr(neighbours, "MOST_COSINES", N * 300)
    z_ND = torch.randn(N, 8, generator=GENERATOR)
    truth_N = torch.randint(0, 9, (N,), generator=GENERATOR)
    truth_N[:8] = torch.tensor([9, 10, 10, 11, 11, 11, 11, 11])
    known_N = torch.rand(N, generator=GENERATOR) < 0.8
    known_N[0] = True
    theirs = "precision_at_1", "r_precision", "mean_average_precision_at_r"
    peers = dict(zip(("recall_at_1", "r_precision", "map_at_r"), theirs, strict=True))
    knn = CustomKNN(CosineSimilarity())
    calculator = AccuracyCalculator(tuple(peers.values()), k="max_bin_count", knn_func=knn)
    both = retrieval(z_ND, {"all": truth_N, "some": truth_N.where(known_N, -1)})
    for label, used_N in (("all", torch.ones_like(known_N)), ("some", known_N)):
        expected = calculator.get_accuracy(z_ND[used_N], truth_N[used_N])
        found = both[label]
        assert found["map_at_r"][0].isnan()
        assert found["map_at_r"][~used_N].isnan().all()
        for name, peer in peers.items():
            assert found[name].nanmean().item() == pytest.approx(expected[peer], abs=1e-6)


def test_recall_counts_a_query_with_an_item_of_its_class_among_the_nearest() -> None:
    z_ND = torch.randn(40, 3, generator=GENERATOR)
    truth_N = torch.arange(40) % 8
    found = retrieval(z_ND, {"a": truth_N})["a"]
    unit_ND = F.normalize(z_ND.double(), dim=1)
    cosine_NN = (unit_ND @ unit_ND.T).fill_diagonal_(-torch.inf)
    for k in (1, 5, 10):
        is_of_class_NK = truth_N[cosine_NN.topk(k).indices] == truth_N[:, None]
        assert torch.equal(found[f"recall_at_{k}"].bool(), is_of_class_NK.any(dim=1)), k


def test_equal_items_are_ranked_in_their_order() -> None:
    """After a collapse all items are equal up to rounding: a score is that of the given order."""
    z_ND = torch.rand(64, 1, generator=GENERATOR) * torch.tensor([[0.1, 0.7, 0.3]])
    truth_N = torch.tensor([0, *[1] * 62, 0])
    found = retrieval(z_ND, {"a": truth_N, "few": truth_N.where(truth_N == 0, -1)})
    assert found["a"]["recall_at_1"].tolist() == [*[0] * 63, 1]
    assert found["a"]["map_at_r"][[0, 63]].tolist() == [0, 1]
    assert found["few"]["recall_at_10"][[0, 63]].tolist() == [1, 1]
