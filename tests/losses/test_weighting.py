"""Weightings of the tasks: reference values, gradients, normalisation, bounds."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses.weighting import (
    LOG_VARIANCE_BOUND,
    FixedWeights,
    LearnedVariance,
)
from tests.losses.cases import VALUES

TASKS = ("shape", "colour")


def losses_of(known: dict[str, float], *keys: str) -> dict[str, Tensor]:
    return {
        t: torch.tensor(known[k], dtype=torch.float64) for t, k in zip(TASKS, keys, strict=True)
    }


LOSSES = losses_of(VALUES["A_tau0.1"], "supcon_t1_mean", "supcon_t2_mean")


def learned(*log_variance: float, **options: Any) -> LearnedVariance:
    weighting = LearnedVariance(TASKS[: len(log_variance)], **options).double()
    with torch.no_grad():
        weighting.log_variance.copy_(torch.tensor(log_variance, dtype=torch.float64))
    return weighting


@pytest.mark.parametrize(
    ("log_variance", "key"),
    [
        ((0.0, 0.0), "(0.0, 0.0)"),
        ((0.5, -0.25), "(0.5, -0.25)"),
        (tuple(loss.log().item() for loss in LOSSES.values()), "(1.656676, 2.523566)"),
    ],
)
def test_value_and_gradient_of_case_a(log_variance: tuple[float, ...], key: str) -> None:
    known = VALUES[f"A_weighted_s={key}"]
    weighting = learned(*log_variance)
    objective, weight_by_task = weighting(LOSSES)
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert objective.item() == pytest.approx(known["mtcon"], rel=1e-6)
    assert gradient.tolist() == pytest.approx(known["dL_ds"], rel=1e-6, abs=1e-9)
    assert [w.item() for w in weight_by_task.values()] == pytest.approx(
        [math.exp(-s) for s in log_variance], rel=1e-12
    )


def test_a_loss_that_rounds_below_zero_has_a_penalty() -> None:
    """Contrastive losses near 0 do, of tasks with labels."""
    weighting = learned(0.5)
    objective = weighting({"shape": torch.tensor(-1e-9).double()}).objective
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert gradient.item() == pytest.approx(1)


def test_half_the_penalty_is_kendalls_form() -> None:
    """Case G: value, gradient 1/2 - exp(-s) CE, and optimum sigma^2 = 2 CE.

    Kendall et al. 2018, arXiv:1705.07115, eq. 10.
    """
    known = VALUES["G"]
    losses = losses_of(known, "ce1", "ce2")

    def objective(*log_variance: float, penalty: float = 0.5) -> tuple[float, list[float]]:
        weighting = learned(*log_variance, penalty=penalty)
        value = weighting(losses).objective
        (gradient,) = torch.autograd.grad(value, weighting.log_variance)
        return value.item(), gradient.tolist()

    value, gradient = objective(0.5, -0.25)
    assert value == pytest.approx(known["kendall_s"], rel=1e-6)
    expected = [
        0.5 - math.exp(-s) * loss.item()
        for s, loss in zip((0.5, -0.25), losses.values(), strict=True)
    ]
    assert gradient == pytest.approx(expected, rel=1e-12)
    assert objective(0.0, 0.0)[0] == pytest.approx(known["kendall_s0"], rel=1e-6)
    assert objective(0.5, -0.25, penalty=1.0)[0] == pytest.approx(known["log2_form"], rel=1e-6)
    best = objective(*known["opt_s_kendall"])
    assert best[0] == pytest.approx(known["opt_val_kendall"], rel=1e-6)
    assert best[1] == pytest.approx([0, 0], abs=1e-9)
    assert known["opt_s_kendall"] == pytest.approx(
        [math.log(2 * loss.item()) for loss in losses.values()], rel=1e-6
    )


def test_normalised_weights_keep_their_ratio_and_have_mean_one() -> None:
    _, plain = learned(0.5, -0.25)(LOSSES)
    _, applied = learned(0.5, -0.25, normalise=True)(LOSSES)
    assert sum(w.item() for w in applied.values()) / 2 == pytest.approx(1, rel=1e-12)
    ratio = plain["shape"] / plain["colour"]
    assert (applied["shape"] / applied["colour"]).item() == pytest.approx(ratio.item(), rel=1e-12)


def test_clamp_brings_log_variances_back_into_their_bounds() -> None:
    weighting = learned(100.0, -100.0)
    weighting.clamp()
    assert weighting.log_variance.tolist() == [LOG_VARIANCE_BOUND, -LOG_VARIANCE_BOUND]
    inside = learned(0.5, -0.25)
    inside.clamp()
    assert inside.log_variance.tolist() == [0.5, -0.25]


def test_fixed_weights_go_by_name() -> None:
    losses = {"b": torch.tensor(3.0, requires_grad=True), "a": torch.tensor(5.0)}
    objective, weights = FixedWeights({"a": 0.5, "b": 2.0})(losses)
    assert objective.item() == 8.5
    assert {name: weight.item() for name, weight in weights.items()} == {"b": 2.0, "a": 0.5}
    objective.backward()
    assert losses["b"].grad == 2.0
    assert not any(weight.requires_grad for weight in weights.values())


def test_losses_are_matched_by_name_and_names_may_be_anything() -> None:
    weighting = LearnedVariance(("heel.height", ""))
    with torch.no_grad():
        weighting.log_variance.copy_(torch.tensor([0.0, 1.0]))
    objective, weights = weighting({"": torch.tensor(2.0), "heel.height": torch.tensor(1.0)})
    assert objective.item() == pytest.approx(1 + 2 * math.exp(-1) + 1)
    assert {name: w.item() for name, w in weights.items()} == pytest.approx(
        {"heel.height": 1, "": math.exp(-1)}
    )
