"""Statistics of several trainings: pairing by seed, trends, intervals over seeds, verdicts."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from experiments.reproduction import trends
from mtcon_ray.evaluation.intervals import Scores
from tests.experiments.pretended import setting
from tests.some import some

ROWS = np.arange(4)
SMALL = setting(Path("x"), "small")


def scores(*by_seed: float, seeds: tuple[int, ...] = (0, 1, 2), noise: float = 0.0) -> Scores:
    """Returns scores whose resamples are those of the items plus the same noise for all systems."""
    score_S = np.array(by_seed)
    shared_SK = noise * np.random.default_rng(0).standard_normal((len(by_seed), 50))
    return Scores(seeds, score_S, score_S[:, None] + shared_SK, ROWS, ROWS)


def test_noise_that_systems_share_cancels_in_a_difference() -> None:
    pair = [scores(0.8, 0.7, 0.9, noise=0.3), scores(0.6, 0.5, 0.7, noise=0.3)]
    found = some(trends.interval_of(trends.combined(lambda s: s[0] - s[1], pair)))
    assert found[:3] == pytest.approx((0.2, 0.2, 0.2))
    alone = some(trends.interval_of(pair[0]))
    assert alone.high - alone.low > 0.1


def test_nothing_is_combined_without_a_system_or_with_other_seeds() -> None:
    one, other = scores(0.2, 0.4, 0.6), scores(0.2, 0.4, 0.6, seeds=(0, 1, 3))
    assert trends.mean_of([one, None]) is None
    assert trends.mean_of([one, other]) is None
    assert trends.mean_of([]) is None
    assert trends.interval_of(None) is None
    assert trends.seeds_of([one, None]) == trends.seeds_of([one, other]) == [[], []]


def test_interval_and_p_of_one_number_per_seed_are_students() -> None:
    values = [0.3, 0.1, 0.2]
    expected, found = ttest_1samp(values, 0), some(trends.over_seeds(values))
    assert found.value == pytest.approx(0.2)
    assert found[1:3] == pytest.approx(tuple(expected.confidence_interval()))
    assert found.over_seeds
    tested = trends.seeds_tested("", values, in_points=False)
    assert tested.p == pytest.approx(expected.pvalue)
    # A paired test of three has 80 % power at 3.26 deviations, here 0.1 each.
    assert trends.decided(SMALL, [tested])[0].detectable == "0.326"


def test_trend_is_the_mean_over_seeds() -> None:
    # Seeds (1, 2, 3), (1, 3, 2) and (3, 2, 1) of three values.
    found = some(trends.trend([1, 2, 3], [[1, 1, 3], [2, 3, 2], [3, 2, 1]]))
    assert found.value == pytest.approx((1 + 0.5 - 1) / 3)
    assert found.low == -1.0
    assert found.high == 1.0
    assert trends.trend([1, 2], [[0.1, 0.2], [0.3]]) is None
    assert trends.trend_tested("it rises", [0, 1, 2], [[1.0] * 3] * 3).p == 1


@pytest.mark.parametrize(("falls", "answer"), [(True, "holds"), (False, "does not hold")])
def test_verdict_of_a_trend(falls: bool, answer: str) -> None:
    by_x = [[0.5, 0.7, 0.6], [0.4, 0.6, 0.5], [0.1, 0.3, 0.2]]
    tested = trends.trend_tested("it falls", [0, 1, 2], by_x, falls=falls)
    # Three seeds of three values each have the same one of 6 orders, or all the opposite one.
    assert tested.p == pytest.approx(2 / 6**3)
    (found,) = trends.decided(SMALL, [tested])
    assert (found.answer, found.p) == (answer, "0.009")
    assert found.ours == "rank correlation -1.00 [-1.00, -1.00]"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([0.1, 0.11, 0.12], "holds"),
        ([-0.1, -0.11, -0.12], "does not hold"),
        ([0.1, -0.1, 0.05], "undecided"),
        ([0.0, 0.0, 0.0], "undecided"),
        ([0.1, 0.1, 0.1], "holds"),
    ],
)
def test_verdict_of_a_difference(values: list[float], answer: str) -> None:
    (found,) = trends.decided(SMALL, [trends.seeds_tested("it is above", values)])
    assert found.answer == answer


def test_the_claims_of_an_experiment_are_corrected_together() -> None:
    """Alone each of the two is shown; of two, the weaker one is not."""
    strong = trends.seeds_tested("strong", [0.1, 0.101, 0.1])
    weak = trends.seeds_tested("weak", [0.1, 0.2, 0.15])
    missing = trends.seeds_tested("missing", [])
    assert some(weak.p) < 0.05
    found = trends.decided(SMALL, [weak, missing, strong, weak])
    answers = ["undecided", "not testable here", "holds", "undecided"]
    assert [verdict.answer for verdict in found] == answers
    assert found[1].p == ""
    assert trends.decided(SMALL, [weak])[0].answer == "holds"


def test_claims_without_enough_results_are_not_decided() -> None:
    none = [
        trends.trend_tested("it rises", [0, 1], [[0.5], []]),
        trends.difference_tested("it is above", None),
        trends.seeds_tested("it is above", []),
        trends.alike_tested("equal by construction", scores(0.0, 0.0, 0.0), 0.02),
    ]
    few = [
        trends.trend_tested("it rises", [0, 1, 2], [[0.1, 0.1], [0.2, 0.2], [0.3, 0.3]]),
        trends.difference_tested("it is above", scores(0.8, 0.8, seeds=(0, 1))),
        trends.seeds_tested("it is above", [0.1, 0.1]),
    ]
    assert {v.answer for v in trends.decided(SMALL, none)} == {"not testable here"}
    found = {(v.answer, v.why) for v in trends.decided(SMALL, few)}
    assert found == {("undecided", "2 seeds, at least 3 are needed")}
