"""Tests of confidence intervals against loops, simulations and invariances."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from mtcon_ray.evaluation import intervals
from mtcon_ray.evaluation.predictions import LabelPredictions
from mtcon_ray.evaluation.scores import average_precisions, resampled_counts
from tests.some import some


def of_classes(right: Any) -> intervals.Scores:
    """Returns the scores of S trainings whose correct items are `right`, bool [S, n]."""
    truth = np.arange(len(right[0])) % 3
    return scored(truth, [np.where(each, truth, 7) for each in right])


def scored(truth: Any, predicted: Any, resamples: int = 400) -> intervals.Scores:
    rows = np.arange(len(truth)) * 2
    by_seed = {s: LabelPredictions(rows, truth, each) for s, each in enumerate(predicted)}
    return some(intervals.resampled_scores(by_seed, resamples))


def test_accuracies_are_those_of_a_loop_over_draws_seeds_and_items() -> None:
    right = np.array([[1, 0, 1, 1, 0], [0, 0, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=bool)
    found = of_classes(right)
    counts = torch.cat([*resampled_counts(5, 400, intervals.ITEMS_SEED)], dim=1)
    times = np.random.default_rng(intervals.SEEDS_SEED).multinomial(3, [1 / 3] * 3, size=400)
    draws = []
    for k in range(400):
        accuracies = []
        for s in range(3):
            drawn = [right[s, i] for i in range(5) for _ in range(int(counts[i, k]))]
            assert found.drawn_SK[s, k] == pytest.approx(np.mean(drawn))
            accuracies += [np.mean(drawn)] * int(times[k, s])
        centre = found.drawn_SK[:, k].mean()
        draws.append(centre + np.sqrt(3 / 2) * (np.mean(accuracies) - centre))
    expected = (right.mean(), *np.quantile(draws, [0.025, 0.975]))
    assert intervals.mean_interval(found)[:3] == pytest.approx(expected)
    nearly = of_classes(np.arange(60) >= [[0], [0], [3]])
    assert intervals.mean_interval(nearly).high > intervals.score_interval(nearly).high == 1


def test_items_of_a_group_are_drawn_together() -> None:
    """So copies of all items add nothing to what is known."""
    truth, right = np.arange(40) % 3, np.random.default_rng(0).random((3, 40)) < 0.6
    single, rows, both = of_classes(right), np.arange(80), np.tile(truth, 2)
    copies = [np.where(each, both, 7) for each in np.tile(right, 2)]

    def found(groups: Any) -> intervals.Scores:
        by_seed = {s: LabelPredictions(rows, both, p, (), groups) for s, p in enumerate(copies)}
        return some(intervals.resampled_scores(by_seed, 400))

    grouped, alone = found(rows % 40), found(None)
    np.testing.assert_allclose(grouped.drawn_SK, single.drawn_SK)
    assert alone.drawn_SK.std() < grouped.drawn_SK.std()
    assert intervals.difference(grouped, alone) is None, "drawn in different ways"


def test_scores_of_sets_are_those_of_repeated_items() -> None:
    random = np.random.default_rng(0)
    bits = (random.random((30, 2)) < 0.4).astype(np.uint8)
    bits[3, 1] = 255
    ranks = random.normal(size=(2, 30, 2)).round(1).astype(np.float32)  # some are equal
    sets = scored(bits, ranks, 130)
    counts = torch.cat([*resampled_counts(30, 130, intervals.ITEMS_SEED)], dim=1)

    def score(s: int, index: torch.Tensor) -> float:
        drawn = torch.from_numpy(ranks[s])[index], torch.from_numpy(bits)[index]
        return average_precisions(*drawn).mean().item()

    for s in range(2):
        first, last = (  # a resample of the first tile and a resample of the last
            sets.drawn_SK[s, k] - score(s, torch.arange(30).repeat_interleave(counts[:, k].long()))
            for k in (0, 129)
        )
        # The scores of a set are shifted: see the next test.
        assert first == pytest.approx(last, abs=1e-6)
        assert first < 0
    assert sets.drawn_SK.mean(axis=1) == pytest.approx(sets.score_S)
    assert sets.score_S[1] == pytest.approx(score(1, torch.arange(30)))


def test_seeds_widen_an_interval_and_one_seed_says_that_it_has_items_alone() -> None:
    same, other = np.arange(400) % 2 == 0, np.arange(400) % 4 != 0
    apart = intervals.mean_interval(of_classes([same, other]))
    alike = intervals.mean_interval(of_classes([same, same]))
    alone = intervals.mean_interval(of_classes([same]))
    assert apart.high - apart.low > 2 * (alike.high - alike.low)
    assert alike[:3] == pytest.approx(alone[:3])
    assert (alike.over_seeds, alone.over_seeds) == (True, False)


def test_a_difference_has_the_width_of_its_items_and_pairs_equal_seeds() -> None:
    """The width is that of a normal interval over the items' differences."""
    right = np.random.default_rng(0).random((4, 400)) < 0.7
    first, second = (of_classes(each[None]) for each in right[:2])
    gap, gap_n = some(intervals.difference(first, second)), right[0] * 1.0 - right[1]
    assert gap.value == pytest.approx(gap_n.mean())
    assert (gap.high - gap.low) / 2 == pytest.approx(1.96 * gap_n.std() / 20, rel=0.1)

    one = of_classes(right)
    assert some(intervals.difference(one, one))[:3] == (0, 0, 0)
    apart = some(intervals.difference(one, one._replace(seeds=(5, 6, 7, 8))))
    assert apart.low < 0 < apart.high


def test_items_that_differ_are_not_paired() -> None:
    truth, rows = np.arange(9), np.arange(9)
    moved = LabelPredictions(rows + 1, truth, truth)
    changed = LabelPredictions(rows, truth[::-1].copy(), truth)
    plain = LabelPredictions(rows, truth, truth)
    for other in (moved, changed):
        assert intervals.resampled_scores({0: plain, 1: other}) is None
        a, b = (some(intervals.resampled_scores({0: each})) for each in (plain, other))
        assert intervals.difference(a, b) is None


def test_a_verdict_is_by_p_and_the_side_of_the_margin() -> None:
    above, below = (intervals.Interval(v, v, v, True) for v in (0.02, 0.005))
    assert intervals.judge(above, 0.05, margin=0.01) == "holds"
    assert intervals.judge(above, 0.051, margin=0.01) == "undecided"
    assert intervals.judge(below, 0.05, margin=0.01) == "does not hold"


def p_of(a: intervals.Scores, b: intervals.Scores, margin: float = 0.0, **least: Any) -> float:
    gap = some(intervals.difference(a, b)).value - margin
    return intervals.p_value(gap, intervals.standard_error(a, b, **least))


def drawn(score_S: Any, item_K: Any, seeds: tuple[int, ...] | None = None) -> intervals.Scores:
    """Returns the scores of S seeds that K draws of the items move alike."""
    score_S, rows = np.asarray(score_S, dtype=float), np.arange(2000)
    seeds = seeds or tuple(range(len(score_S)))
    return intervals.Scores(seeds, score_S, score_S[:, None] + item_K, rows, rows)


def test_p_without_a_spread_of_seeds_is_that_of_a_normal_test_over_items() -> None:
    """The analytic deviation of a mean of n paired differences is std / sqrt(n)."""
    n, random = 2000, np.random.default_rng(0)
    right = random.random((2, n)) < np.array([[0.62], [0.60]])
    d_n = right[0].astype(float) - right[1]
    a, b = of_classes(right[:1].repeat(3, axis=0)), of_classes(right[1:].repeat(3, axis=0))
    for margin in (0.0, 0.01, 0.05, -0.02):
        z = (d_n.mean() - margin) / (d_n.std() / math.sqrt(n))
        found = stats.norm.isf(p_of(a, b, margin) / 2)
        assert found == pytest.approx(abs(z), rel=0.1), "400 draws have a deviation to 4 %"
    assert p_of(a, b, 0.5) < 1e-9, "far below the resolution of counted draws"
    assert p_of(b, a, 0.01) == pytest.approx(p_of(a, b, -0.01))


def test_p_without_a_spread_from_items_is_that_of_students_test() -> None:
    """Seeds are drawn 20,000 times, which gives their deviation to a percent."""
    items_K = np.zeros(20_000)
    a, b = [0.71, 0.74, 0.72, 0.76], [0.70, 0.69, 0.68, 0.71]
    paired = p_of(drawn(a, items_K), drawn(b, items_K))
    assert paired == pytest.approx(stats.ttest_rel(a, b).pvalue, rel=0.03)
    other = drawn(b, items_K, seeds=(4, 5, 6, 7))
    welch = stats.ttest_ind(a, b, equal_var=False).pvalue
    assert p_of(drawn(a, items_K), other) == pytest.approx(welch, rel=0.05)
    one = drawn(a, items_K), drawn([0.70], items_K)
    assert p_of(*one) == pytest.approx(stats.ttest_1samp(a, 0.70).pvalue, rel=0.03)
    assert intervals.seed_variance(*one) == pytest.approx((np.var(a, ddof=1), 3))


def test_p_of_few_groups_is_that_of_students_test_over_groups() -> None:
    """A single group says nothing about others, however many items it has."""
    groups, random = np.repeat(np.arange(4), 50), np.random.default_rng(0)
    drawn_K = random.choice([0.1, 0.2, 0.3, 0.2], (20_000, 4)).mean(axis=1)
    a, b = drawn([0.2], drawn_K - 0.2), drawn([0.0], np.zeros(20_000))
    a, b = (each._replace(rows=groups, groups=groups) for each in (a, b))
    expected = np.std([0.1, 0.2, 0.3, 0.2], ddof=1) / 2
    assert intervals.standard_error(a, b) == pytest.approx((expected, 3), rel=0.02)
    one = 0 * groups
    assert p_of(a._replace(groups=one), b._replace(groups=one)) == 1


def test_equal_results_of_all_items_are_not_certain() -> None:
    """With 30 right items of 30 in both systems the difference may still be a few percent."""
    right = of_classes(np.ones((1, 30), dtype=bool))
    assert p_of(right, right, margin=0.01) > 0.5


def test_tables_without_differences_have_a_finding_as_often_as_the_level_says() -> None:
    """Ten claims a table, 3 seeds; the items have a deviation of 1.

    With widely spread seeds and without the mean variance over seeds, 17 % of the tables have one.
    """
    random, K, tables, spread = np.random.default_rng(0), 300, 150, 2.0
    found, alone = 0, 0
    for _ in range(tables):
        pairs = []
        for _ in range(10):
            item, seeds_S = random.normal(), spread * random.normal(size=(2, 3))
            a = drawn(item + seeds_S[0], random.normal(size=K))
            pairs.append((a, drawn(seeds_S[1], np.zeros(K))))
        variances = [v.value for pair in pairs if (v := intervals.seed_variance(*pair))]
        least = intervals.Estimate(float(np.mean(variances)), 20)
        p_values = [p_of(*pair, least=least) for pair in pairs]
        found += min(intervals.holm(p_values)) <= intervals.LEVEL
        alone += min(intervals.holm([p_of(*pair) for pair in pairs])) <= intervals.LEVEL
    assert 0.01 < found / tables < 0.07
    assert alone / tables > 0.1


def test_p_of_seeds_that_agree_by_chance_is_by_the_least_variance() -> None:
    """The deviation of a difference of two means of three trainings is sqrt(2 / 3) of theirs."""
    items_K = np.zeros(9)
    same, other = drawn([0.5] * 3, items_K), drawn([0.6] * 3, items_K)
    t = 0.1 / math.sqrt(2 / 3 * 0.05**2)
    found = p_of(same, other, least=intervals.Estimate(0.05**2, 12))
    assert found == pytest.approx(2 * stats.t.sf(t, 12), rel=0.001)
    apart = drawn([0.4, 0.6, 0.9], items_K)
    small = intervals.Estimate(1e-6, 12)
    assert p_of(apart, same, least=small) == pytest.approx(p_of(apart, same), rel=0.001)
    single = drawn([0.6], items_K), drawn([0.5], items_K)
    assert p_of(*single, least=small) == 0, "two systems that do not depend on a seed"
