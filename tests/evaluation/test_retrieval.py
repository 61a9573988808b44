"""Retrieval among items, beside pytorch-metric-learning."""

import pytest
import torch
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from pytorch_metric_learning.utils.inference import CustomKNN

from mtcon_ray.evaluation.retrieval import PORTION, retrieval

GENERATOR = torch.Generator().manual_seed(0)
N = PORTION + 188


def test_agrees_with_pytorch_metric_learning() -> None:
    """Some classes have fewer than ten items, and one has a single item, which does not count."""
    z_ND = torch.randn(N, 8, generator=GENERATOR)
    truth_N = torch.randint(0, 9, (N,), generator=GENERATOR)
    truth_N[:8] = torch.tensor([9, 10, 10, 11, 11, 11, 11, 11])
    peers = {
        "recall_at_1": "precision_at_1",
        "r_precision": "r_precision",
        "map_at_r": "mean_average_precision_at_r",
    }
    calculator = AccuracyCalculator(
        tuple(peers.values()), k=N - 1, knn_func=CustomKNN(CosineSimilarity())
    )
    expected = calculator.get_accuracy(z_ND, truth_N)
    found = retrieval(z_ND, truth_N)
    assert found["map_at_r"].isnan().nonzero().tolist() == [[0]]
    for name, peer in peers.items():
        assert found[name].nanmean().item() == pytest.approx(expected[peer], abs=1e-6)


def test_recall_counts_a_query_with_an_item_of_its_class_among_the_nearest() -> None:
    z_ND = torch.randn(40, 3, generator=GENERATOR)
    truth_N = torch.arange(40) % 8
    found = retrieval(z_ND, truth_N)
    unit_ND = z_ND.double() / z_ND.double().norm(dim=1, keepdim=True)
    for i in range(40):
        others = sorted(set(range(40)) - {i}, key=lambda j: -float(unit_ND[i] @ unit_ND[j]))
        for k in (1, 5, 10):
            hit = any(truth_N[j] == truth_N[i] for j in others[:k])
            assert found[f"recall_at_{k}"][i] == hit, (i, k)


def test_equal_items_are_ranked_in_their_order() -> None:
    """After a collapse all items are equal, and a score is that of the given order."""
    found = retrieval(torch.ones(4, 2), torch.tensor([0, 1, 1, 0]))
    assert found["recall_at_1"].tolist() == [0, 0, 0, 1]
    assert found["map_at_r"].tolist() == [0, 0, 0, 1]
