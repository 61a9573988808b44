"""Statistics of several trainings: pairing by seed, changes, intervals over seeds, verdicts."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from experiments.reproduction import trends
from mtcon_ray.evaluation.intervals import Scores
from tests.experiments.pretended import setting
from tests.some import some

ROWS = np.arange(2000)
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
    grouped = one._replace(groups=ROWS // 2)
    assert some(trends.mean_of([grouped, grouped])).groups is grouped.groups
    assert trends.mean_of([one, other]) is None
    assert trends.mean_of([]) is None
    assert trends.interval_of(None) is None


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


def test_a_change_is_that_of_the_line_through_all_values() -> None:
    # Seeds (1, 2, 3) and (3, 2, 4) of three values.
    assert trends.changes_of([[1, 3], [2, 2], [3, 4]]) == [2, 1]
    assert trends.changes_of([[0.1, 0.2], [0.3]]) == trends.changes_of([[], []]) == []
    by_x = [scores(0.1, 0.2, 0.3, noise=0.1), scores(0.3, 0.3, 0.3, noise=0.1)]
    change = some(trends.combined(trends.fitted_change, by_x))
    assert change.score_S.tolist() == pytest.approx([0.2, 0.1, 0.0])
    assert change.drawn_SK[0].tolist() == pytest.approx([0.2] * 50)


def test_the_variance_of_like_differences_is_at_least_the_mean_one() -> None:
    """A difference that happens to be equal in three seeds is not thereby certain."""
    steady, varying = scores(0.1, 0.101, 0.1), scores(0.1, 0.3, 0.2)
    tests = trends.differences_tested({"steady": steady, "varying": varying, "missing": None})
    assert [each.claim for each in tests] == ["steady", "varying", "missing"]
    first, second, _ = (each.error for each in tests)
    assert some(trends.difference_tested("steady", steady).error).value < 0.001
    # The mean of the variances of both over seeds, 0.01 and nearly 0, in the mean of three.
    assert some(first).value == pytest.approx((0.01 / 2 / 3) ** 0.5, rel=0.01)
    assert some(first).freedom == pytest.approx(4, rel=0.01)
    assert some(second).value == some(trends.difference_tested("", varying).error).value


def test_equal_scores_that_the_seeds_cannot_show_to_be_equal_are_not_decided_here() -> None:
    """Of equal accuracies the margin is the difference that the design must detect."""
    close, far = scores(0.001, 0.0, 0.0005), scores(0.03, -0.03, 0.004)
    tests = [trends.alike_tested(claim, each, 0.02) for claim, each in [("a", close), ("b", far)]]
    answers = [verdict.answer for verdict in trends.decided(SMALL, tests)]
    assert answers == ["holds", "cannot be decided here"]


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([0.1, 0.11, 0.12], "holds"), ([-0.1, -0.11, -0.12], "does not hold"),
        ([0.1, -0.1, 0.05], "undecided"), ([0.0, 0.0, 0.0], "undecided"),
        ([0.1, 0.1, 0.1], "holds"),
    ],
)  # fmt: skip
def test_verdict_of_a_difference(values: list[float], answer: str) -> None:
    (found,) = trends.decided(SMALL, [trends.seeds_tested("it is above", values)])
    assert found.answer == answer


def test_the_claims_of_an_experiment_are_corrected_together() -> None:
    """Alone each of the two is shown; of two, the weaker one is not."""
    strong = trends.seeds_tested("strong", [0.1, 0.101, 0.1])
    weak = trends.seeds_tested("weak", [0.1, 0.2, 0.15])
    assert some(weak.p) < 0.05
    found = trends.decided(SMALL, [weak, trends.seeds_tested("missing", []), strong, weak])
    answers = ["undecided", "not testable here", "holds", "undecided"]
    assert [verdict.answer for verdict in found] == answers
    assert found[1].p == ""
    assert trends.decided(SMALL, [weak])[0].answer == "holds"


def test_claims_without_enough_results_are_not_decided() -> None:
    none = [
        trends.difference_tested("it is above", None),
        trends.seeds_tested("it is above", []),
        trends.alike_tested("equal by construction", scores(0.0, 0.0, 0.0), 0.02),
    ]
    few = [
        trends.difference_tested("it is above", scores(0.8, 0.8, seeds=(0, 1))),
        trends.seeds_tested("it is above", [0.1, 0.1]),
    ]
    assert {v.answer for v in trends.decided(SMALL, none)} == {"not testable here"}
    found = {(v.answer, v.why) for v in trends.decided(SMALL, few)}
    assert found == {("undecided", "2 seeds, at least 3 are needed")}
