"""Tests of average precision against scikit-learn, loops over the definition, and resampling."""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from mtcon_ray.evaluation.bootstrap import resampled_counts, score_std
from mtcon_ray.evaluation.scores import (
    mean_average_precision,
    tie_aware_average_precision,
    weighted_average_precision,
)

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


def looped(scores: list[float], bits: list[int]) -> float:
    """Returns one label's average precision by its definition, as in MultiSupCon's code.

    Equal scores are ranked in the items' order.
    """
    ranked = sorted(range(len(scores)), key=lambda i: -scores[i])
    ranked = [i for i in ranked if bits[i] != UNKNOWN]
    hits, total = 0, 0.0
    for rank, i in enumerate(ranked, 1):
        if bits[i] == 1:
            hits += 1
            total += hits / rank
    return total / (hits + 1e-8)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_map_is_what_the_definition_says(ties: bool, unknown: bool) -> None:
    scores, bits = drawn(ties=ties, unknown=unknown)
    each = [looped(s, b) for s, b in zip(scores.T.tolist(), bits.T.tolist(), strict=True)]
    assert mean_average_precision(scores, bits) == pytest.approx(np.mean(each), rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_tie_aware_precision_is_sklearn_s(ties: bool, unknown: bool) -> None:
    scores, bits = drawn(ties=ties, unknown=unknown)
    expected = [
        average_precision_score(bits[known, j].numpy(), scores[known, j].numpy())
        for j, known in enumerate((bits != UNKNOWN).T)
    ]
    assert tie_aware_average_precision(scores, bits).tolist() == pytest.approx(expected, rel=1e-12)


def test_a_label_that_no_item_has_scores_nothing() -> None:
    scores = torch.tensor([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    bits = torch.tensor([[1, 0], [0, 0], [0, UNKNOWN]], dtype=torch.uint8)
    assert mean_average_precision(scores, bits) == pytest.approx(0.5, abs=1e-7)
    assert tie_aware_average_precision(scores, bits).tolist() == [1.0, 0.0]
    unknown = torch.full((3, 2), UNKNOWN, dtype=torch.uint8)
    assert mean_average_precision(scores, unknown) == 0
    assert score_std("set", scores, unknown, 10, seed=0) == 0


def test_a_resample_counts_copies_as_equal_ranks() -> None:
    """Weighting items by counts equals repeating them."""
    scores, bits = drawn(n=30, L=2, ties=True)
    (counts,) = resampled_counts(30, 1, seed=3)
    rows = torch.repeat_interleave(torch.arange(30), counts[:, 0].long())
    weighted = weighted_average_precision(scores, bits, counts.double())[:, 0]
    torch.testing.assert_close(weighted, tie_aware_average_precision(scores[rows], bits[rows]))


def test_resamples_are_whole_follow_their_seed_and_fit_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (counts,) = resampled_counts(50, 200, seed=0)
    assert counts.shape == (50, 200)
    assert (counts.sum(dim=0) == 50).all()
    assert counts.var(dim=0).mean() == pytest.approx(1, abs=0.05)
    assert torch.equal(counts, next(resampled_counts(50, 200, seed=0)))
    assert not torch.equal(counts, next(resampled_counts(50, 200, seed=1)))
    monkeypatch.setattr("mtcon_ray.evaluation.bootstrap.MOST_COUNTS", 50 * 80)
    portions = list(resampled_counts(50, 200, seed=0))
    assert [portion.shape[1] for portion in portions] == [80, 80, 40]
