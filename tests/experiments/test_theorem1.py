"""Tests of the simulation of MTCon's theorem 1."""

import numpy as np
import pandas as pd
import pytest

from experiments import theorem1
from experiments.reproduction import spiked

SEEDS = range(3)


def test_distance_of_known_subspaces() -> None:
    angle = 0.3
    a_DR = np.eye(4)[:, :2]
    b_DR = np.stack([np.eye(4)[0], np.cos(angle) * np.eye(4)[1] + np.sin(angle) * np.eye(4)[2]]).T
    assert spiked.sine_distance(a_DR, a_DR) == 0
    assert spiked.sine_distance(a_DR, b_DR) == pytest.approx(np.sin(angle))
    assert spiked.sine_distance(a_DR, np.eye(4)[:, 2:]) == pytest.approx(np.sqrt(2))


def test_risk_of_the_best_linear_predictor_is_that_of_a_regression() -> None:
    rng = np.random.default_rng(0)
    sample = spiked.draw(spiked.Model(d=8, n=50).with_noise(3.0), 2)
    learned_DR, target_R = spiked.learned_features(sample, np.ones(6)), np.array([0.6, 0.0, 0.8])
    z_NR = rng.standard_normal((400_000, 3))
    x_ND = z_NR @ sample.features_DR.T + rng.standard_normal((len(z_NR), 8))
    y_N = z_NR @ target_R

    def regression(basis_DR: np.ndarray) -> float:
        h_NR = x_ND @ basis_DR
        return float(((y_N - h_NR @ np.linalg.lstsq(h_NR, y_N, rcond=None)[0]) ** 2).mean())

    expected = regression(learned_DR) - regression(sample.features_DR)
    found = spiked.excess_risk(learned_DR, sample.features_DR, target_R)
    assert found == pytest.approx(expected, abs=0.003)
    assert found > 0.05
    assert spiked.excess_risk(sample.features_DR, sample.features_DR, target_R) == 0


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    """The rows of all axes but tasks, of few draws."""
    return pd.DataFrame([*theorem1._axis_rows(SEEDS), *theorem1._noisy_task_rows(SEEDS)])


def test_claims_hold_in_few_draws(table: pd.DataFrame) -> None:
    found = [
        *theorem1._slope_answers(table),
        theorem1._bound_answer(table),
        *theorem1._weighting_answers(table),
    ]
    assert len(found) == 6
    # Three draws leave the intervals of two exponents too wide.
    assert {each.answer for each in found} <= {"holds", "undecided"}
    assert sum(each.answer == "holds" for each in found) >= 4


def test_claims_fail_where_the_table_says_the_opposite(table: pd.DataFrame) -> None:
    worse = table.assign(error=table["error"].where(table["weighting"] == "equal weights", 3.0))
    assert {each.answer for each in theorem1._weighting_answers(worse)} == {"does not hold"}
    flat = table.assign(error=1.0 + 1e-3 * table["draw"])
    assert {each.answer for each in theorem1._slope_answers(flat)} == {"does not hold"}
    assert theorem1._bound_answer(flat).answer == "does not hold"
