"""Weightings of the tasks: reference values, gradients, normalisation, bounds."""

import math
from typing import Any

import pytest
import torch

from mtcon_ray.losses.weighting import FixedWeights, LearnedVariance
from tests.losses.cases import VALUES

# Names may be anything, and losses may come in any order.
TASKS = ("heel.height", "")
LOSS_T = [VALUES["A_tau0.1"][f"supcon_t{i}_mean"] for i in (1, 2)]
LOSSES = dict(zip(TASKS[::-1], torch.tensor(LOSS_T[::-1], dtype=torch.float64), strict=True))


def learned(*log_variance: float, **options: Any) -> LearnedVariance:
    weighting = LearnedVariance(TASKS[: len(log_variance)], **options).double()
    with torch.no_grad():
        weighting.log_variance.copy_(torch.tensor(log_variance, dtype=torch.float64))
    return weighting


CASES_A = [
    ((0.0, 0.0), "(0.0, 0.0)"),
    ((0.5, -0.25), "(0.5, -0.25)"),
    (tuple(map(math.log, LOSS_T)), "(1.656676, 2.523566)"),
]


@pytest.mark.parametrize(("log_variance", "key"), CASES_A)
def test_value_and_gradient_of_case_a(log_variance: tuple[float, ...], key: str) -> None:
    known = VALUES[f"A_weighted_s={key}"]
    weighting = learned(*log_variance)
    objective, weight_by_task = weighting(LOSSES)
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert objective.item() == pytest.approx(known["mtcon"], rel=1e-6)
    assert gradient.tolist() == pytest.approx(known["dL_ds"], rel=1e-6, abs=1e-9)
    assert {task: weight.item() for task, weight in weight_by_task.items()} == pytest.approx(
        {task: math.exp(-s) for task, s in zip(TASKS, log_variance, strict=True)}, rel=1e-12
    )


def test_a_loss_that_rounds_below_zero_has_a_penalty() -> None:
    """Contrastive losses near 0 do, of tasks with labels."""
    weighting = learned(0.5)
    objective = weighting({TASKS[0]: torch.tensor(-1e-9).double()}).objective
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert gradient.item() == pytest.approx(1)


def test_normalised_weights_have_mean_one_and_the_learned_balance() -> None:
    """The encoder's gradient is the applied weight. That of s is the same without normalising."""
    s_T = torch.tensor([0.5, -0.25]).double()
    weighting = learned(*s_T.tolist(), normalise=True, penalty=0.5)
    loss_T = torch.stack([LOSSES[task] for task in TASKS]).requires_grad_()
    objective, weights = weighting(dict(zip(TASKS, loss_T, strict=True)))
    of_s, of_loss = torch.autograd.grad(objective, [weighting.log_variance, loss_T])
    applied_T = torch.exp(-s_T) / torch.exp(-s_T).mean()
    torch.testing.assert_close(torch.stack([weights[task] for task in TASKS]), applied_T)
    torch.testing.assert_close(objective, (applied_T * loss_T).sum())
    torch.testing.assert_close(of_loss, applied_T)
    torch.testing.assert_close(of_s, 0.5 - torch.exp(-s_T) * loss_T)


def test_clamp_brings_log_variances_back_into_their_bounds() -> None:
    for outside, inside in (((100.0, -100.0), [6, -6]), ((0.5, -0.25), [0.5, -0.25])):
        weighting = learned(*outside)
        weighting.clamp()
        assert weighting.log_variance.tolist() == inside


def test_fixed_weights_go_by_name() -> None:
    losses = {"b": torch.tensor(3.0, requires_grad=True), "a": torch.tensor(5.0)}
    objective, weights = FixedWeights({"a": 0.5, "b": 2.0})(losses)
    assert objective.item() == 8.5
    assert {name: weight.item() for name, weight in weights.items()} == {"b": 2.0, "a": 0.5}
    objective.backward()
    assert losses["b"].grad == 2.0
    assert not any(weight.requires_grad for weight in weights.values())
