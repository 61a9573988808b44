"""Tests of F1 and its thresholds against scikit-learn and against all possible thresholds."""

import pytest
import torch
from sklearn.metrics import f1_score
from torch import Tensor

from mtcon_ray.evaluation.scores import best_thresholds, f1_scores

UNKNOWN = 255


def drawn(n: int = 50, L: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    bits = (torch.rand(n, L, generator=generator) < 0.3).to(torch.uint8)
    scores = bits + torch.randn(n, L, generator=generator)
    return (scores * 2).round() / 2, bits


@pytest.mark.parametrize("threshold", [-5.0, 0.0, 0.5, 1.0, 9.0])
def test_f1_is_sklearn_s(threshold: float) -> None:
    scores, bits = drawn()
    found = f1_scores(scores, bits, torch.full((4,), threshold))
    truth, predicted = bits.numpy(), (scores >= threshold).numpy()
    for mean, sklearns in (("micro", "micro"), ("macro", "macro"), ("sample", "samples")):
        expected = f1_score(truth, predicted, average=sklearns, zero_division=0)
        assert found[mean] == pytest.approx(expected, rel=1e-12)


def test_what_is_unknown_counts_neither_way() -> None:
    """Unknown bits change neither F1 nor thresholds; items without known bits are ignored."""
    scores, bits = drawn(40, 1)
    known = torch.arange(40) % 3 > 0
    partly = bits.clone()
    partly[~known] = UNKNOWN
    zero = torch.zeros(1)
    assert f1_scores(scores, partly, zero) == f1_scores(scores[known], bits[known], zero)
    assert torch.equal(best_thresholds(scores, partly), best_thresholds(scores[known], bits[known]))


def test_thresholds_give_the_best_f1_that_a_cut_can_give() -> None:
    scores, bits = drawn()
    chosen = best_thresholds(scores, bits)
    for j in range(4):
        one = (scores[:, [j]], bits[:, [j]])
        cuts = torch.arange(-4, 5, 0.25)
        best = max(f1_scores(*one, cut[None])["macro"] for cut in cuts)
        assert f1_scores(*one, chosen[[j]])["macro"] == pytest.approx(best, rel=1e-12)
