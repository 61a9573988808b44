"""Tests of scores and their bootstrap deviations against scikit-learn, loops and resampling."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, f1_score
from torch import Tensor

from mtcon_ray.evaluation import scores as measures
from mtcon_ray.evaluation.scores import best_thresholds, f1_scores, mean_average_precision

UNKNOWN = 255


def drawn(n: int = 60, L: int = 5, *, ties: bool, unknown: bool = False) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n + L)
    bits = (torch.rand(n, L, generator=generator) < 0.3).to(torch.uint8)
    scores = bits + torch.randn(n, L, generator=generator)
    if ties:
        scores = scores.round()
    if unknown:
        bits[torch.rand(n, L, generator=generator) < 0.3] = UNKNOWN
    return scores, bits


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_average_precisions_are_sklearn_s(ties: bool, unknown: bool) -> None:
    scores, bits = drawn(ties=ties, unknown=unknown)
    columns = [(bits[known, j], scores[known, j]) for j, known in enumerate((bits != UNKNOWN).T)]
    expected = [average_precision_score(y.numpy(), score.numpy()) for y, score in columns]
    assert measures.average_precisions(scores, bits).tolist() == pytest.approx(expected, rel=1e-12)


def test_a_label_that_no_item_has_scores_nothing() -> None:
    scores = torch.tensor([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    bits = torch.tensor([[1, 0], [0, 0], [0, UNKNOWN]], dtype=torch.uint8)
    assert measures.average_precisions(scores, bits).tolist() == [1.0, 0.0]
    assert mean_average_precision(scores, bits) == 0.5
    unknown = torch.full((3, 2), UNKNOWN, dtype=torch.uint8)
    assert mean_average_precision(scores, unknown) == 0
    assert measures.score_std("set", scores, unknown, 10, seed=0) == 0


def test_equal_scores_have_the_same_precision_in_any_order() -> None:
    """A collapsed encoder gives equal scores. Its tables may be sorted by the label."""
    bits = (torch.arange(200) < 60).to(torch.uint8)[:, None]
    for each in (bits, bits.flip(0)):
        assert mean_average_precision(torch.zeros(200, 1), each) == pytest.approx(0.3)


@pytest.mark.parametrize("threshold", [-5.0, 0.0, 0.5, 1.0, 9.0])
def test_f1_is_sklearn_s(threshold: float) -> None:
    scores, bits = drawn(ties=True)
    found = f1_scores(scores, bits, torch.full((5,), threshold))
    truth, predicted = bits.numpy(), (scores >= threshold).numpy()
    for mean, sklearns in (("micro", "micro"), ("macro", "macro"), ("sample", "samples")):
        expected = f1_score(truth, predicted, average=sklearns, zero_division=0)
        assert found[mean] == pytest.approx(expected, rel=1e-12)


def test_what_is_unknown_counts_neither_way_for_f1() -> None:
    """Unknown bits change neither F1 nor thresholds; items without known bits are ignored."""
    scores, bits = drawn(40, 1, ties=True)
    known = torch.arange(40) % 3 > 0
    partly = bits.masked_fill(~known[:, None], UNKNOWN)
    zero = torch.zeros(1)
    assert f1_scores(scores, partly, zero) == f1_scores(scores[known], bits[known], zero)
    assert torch.equal(best_thresholds(scores, partly), best_thresholds(scores[known], bits[known]))


def test_thresholds_give_the_best_f1_that_a_cut_can_give() -> None:
    scores, bits = drawn(ties=True, unknown=True)
    chosen = best_thresholds(scores, bits)
    for j in range(5):
        one = (scores[:, [j]], bits[:, [j]])
        best = max(f1_scores(*one, cut[None])["macro"] for cut in torch.arange(-4, 5, 0.25))
        assert f1_scores(*one, chosen[[j]])["macro"] == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(("n", "right"), [(5000, 4000), (100, 30), (7, 1)])
def test_the_deviation_of_an_accuracy_is_that_of_its_resamples(n: int, right: int) -> None:
    drawn = np.random.default_rng(0).binomial(n, right / n, 50_000) / n
    predicted, truth = torch.arange(n), torch.where(torch.arange(n) < right, torch.arange(n), n)
    found = measures.score_std("classes", predicted, truth, 10, seed=0)
    assert found == pytest.approx(drawn.std(), rel=0.015)


def test_resamples_are_whole_follow_a_seed_and_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = torch.cat([*measures.resampled_counts(50, 200, seed=0)], dim=1)
    assert counts.shape == (50, 200)
    assert (counts.sum(dim=0) == 50).all()
    assert counts.var(dim=0).mean() == pytest.approx(1, abs=0.05)
    first = next(measures.resampled_counts(50, 200, seed=0))
    assert torch.equal(counts[:, :128], first)
    assert not torch.equal(first, next(measures.resampled_counts(50, 200, seed=1)))
    monkeypatch.setattr("mtcon_ray.evaluation.scores.MOST_COUNTS", 50 * 80)
    assert [part.shape[1] for part in measures.resampled_counts(50, 200, seed=0)] == [80, 80, 40]
