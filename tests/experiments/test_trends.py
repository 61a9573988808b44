"""Statistics of several trainings: pairing by seed, trends, intervals over seeds, verdicts."""

import math
from pathlib import Path

import numpy as np
import pytest

from experiments.reproduction.budgets import BUDGETS
from experiments.reproduction.cells import Setting
from experiments.reproduction.data import DataChoice
from experiments.reproduction.trends import (
    combined,
    difference_verdict,
    interval_of,
    mean_of,
    over_seeds,
    rank_correlation,
    seeds_of,
    trend,
    trend_verdict,
)
from mtcon_ray.evaluation.intervals import Interval, Scores

ROWS = np.arange(4)


def scores(*by_seed: float, seeds: tuple[int, ...] = (0, 1, 2), noise: float = 0.0) -> Scores:
    """Returns scores whose resamples are those of the items plus the same noise for all systems."""
    score_S = np.array(by_seed)
    shared_SK = noise * np.random.default_rng(0).standard_normal((len(by_seed), 50))
    return Scores(seeds, score_S, score_S[:, None] + shared_SK, ROWS, ROWS)


def setting(budget: str = "small") -> Setting:
    return Setting(BUDGETS[budget], DataChoice("synthetic", None, None, Path("x")), Path("x"))


def test_noise_that_systems_share_cancels_in_a_difference() -> None:
    pair = [scores(0.8, 0.7, 0.9, noise=0.3), scores(0.6, 0.5, 0.7, noise=0.3)]
    found = interval_of(combined(lambda s: s[0] - s[1], pair))
    assert found is not None
    assert found[:3] == pytest.approx((0.2, 0.2, 0.2))
    alone = interval_of(pair[0])
    assert alone is not None
    assert alone.high - alone.low > 0.1


def test_mean_of_several_scores_is_taken_by_seed() -> None:
    found = mean_of([scores(0.2, 0.4, 0.6), scores(0.4, 0.8, 1.0)])
    assert seeds_of(found) == pytest.approx([0.3, 0.6, 0.8])
    assert found is not None
    assert found.drawn_SK[1].tolist() == pytest.approx([0.6] * 50)


def test_nothing_is_combined_without_a_system_or_with_other_seeds() -> None:
    one, other = scores(0.2, 0.4, 0.6), scores(0.2, 0.4, 0.6, seeds=(0, 1, 3))
    assert mean_of([one, None]) is None
    assert mean_of([one, other]) is None
    assert mean_of([]) is None
    assert interval_of(None) is None
    assert seeds_of(None) == []


def test_interval_over_seeds_is_students() -> None:
    found = over_seeds([0.0, 1.0, 2.0])
    # 4.3027 deviations of the mean, of 1 / sqrt(3), with two degrees of freedom.
    half = 4.302653 / math.sqrt(3)
    assert found is not None
    assert found[:3] == pytest.approx((1.0, 1.0 - half, 1.0 + half), abs=1e-5)
    assert found.over_seeds


def test_one_seed_has_no_interval_over_seeds() -> None:
    found = over_seeds([0.4])
    assert found == Interval(0.4, -math.inf, math.inf, False)
    assert over_seeds([]) is None


@pytest.mark.parametrize(
    ("y", "expected"),
    [([1, 2, 3], 1.0), ([9, 5, 1], -1.0), ([2, 2, 2], 0.0), ([1, 1, 2], math.sqrt(3) / 2)],
)
def test_rank_correlation(y: list[float], expected: float) -> None:
    assert rank_correlation([0.1, 1, 100], y) == pytest.approx(expected)


def test_trend_is_the_mean_over_seeds() -> None:
    # Seeds (1, 2, 3), (1, 3, 2) and (3, 2, 1) of three values.
    found = trend([1, 2, 3], [[1, 1, 3], [2, 3, 2], [3, 2, 1]])
    assert found is not None
    assert found.value == pytest.approx((1 + 0.5 - 1) / 3)
    assert found.low == -1.0
    assert found.high == 1.0
    assert trend([1, 2], [[0.1, 0.2], [0.3]]) is None


@pytest.mark.parametrize(("falls", "answer"), [(True, "holds"), (False, "does not hold")])
def test_verdict_of_a_trend(falls: bool, answer: str) -> None:
    by_x = [[0.5, 0.6, 0.7], [0.4, 0.5, 0.6], [0.1, 0.2, 0.3]]
    found = trend_verdict(setting(), "it falls", [0, 1, 2], by_x, falls=falls)
    assert found.answer == answer
    assert found.ours == "rank correlation -1.00 [-1.00, -1.00]"


def test_seeds_that_disagree_leave_a_trend_undecided() -> None:
    found = trend_verdict(setting(), "it rises", [0, 1], [[0.5, 0.6, 0.7], [0.6, 0.7, 0.6]])
    assert found.answer == "undecided"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([0.1, 0.11, 0.12], "holds"),
        ([-0.1, -0.11, -0.12], "does not hold"),
        ([0.1, -0.1, 0.05], "undecided"),
    ],
)
def test_verdict_of_a_difference(values: list[float], answer: str) -> None:
    found = difference_verdict(setting(), "it is above", over_seeds(values))
    assert found.answer == answer


def test_verdicts_show_points_or_plain_numbers() -> None:
    interval = Interval(0.25, 0.125, 0.375, True)
    assert difference_verdict(setting(), "", interval).ours == "+25.00 [+12.50, +37.50] points"
    plain = difference_verdict(setting(), "", interval, in_points=False)
    assert plain.ours == "+0.250 [+0.125, +0.375]"
    assert difference_verdict(setting(), "", over_seeds([0.25])).ours == "+25.00¹ points"


def test_without_results_a_claim_is_not_testable() -> None:
    for found in (
        trend_verdict(setting("smoke"), "it rises", [0, 1], [[0.5], []]),
        difference_verdict(setting("smoke"), "it is above", None),
    ):
        assert found.answer == "not testable here"
        assert found.why


def test_the_smallest_budget_judges_nothing() -> None:
    found = trend_verdict(setting("smoke"), "it rises", [0, 1], [[0.5], [0.6]])
    assert found.answer == "not judged at this budget"
    assert found.ours == "rank correlation +1.00¹"
