"""Weightings of the tasks: reference values, gradients, normalisation, bounds.

The calibrated weights are learned from the floor and the ceiling of a loss.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.contrastive import Range, contrast
from mtcon_ray.losses.positives import EqualLabel, LabelSets, Near, OwnView, Relation
from mtcon_ray.losses.weighting import CalibratedVariance, FixedWeights, LearnedVariance
from tests.losses.cases import VALUES, random_rows

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
    """Case G: value, and gradient 1/2 - exp(-s) CE.

    Kendall et al. 2018, arXiv:1705.07115, eq. 10.
    """
    known, s = VALUES["G"], (0.5, -0.25)
    losses, weighting = losses_of(known, "ce1", "ce2"), learned(*s, penalty=0.5)
    objective = weighting(losses).objective
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert objective.item() == pytest.approx(known["kendall_s"], rel=1e-6)
    expected = [0.5 - math.exp(-x) * losses[t].item() for x, t in zip(s, TASKS, strict=True)]
    assert gradient.tolist() == pytest.approx(expected, rel=1e-12)


def test_normalised_weights_keep_their_ratio_and_have_mean_one() -> None:
    _, plain = learned(0.5, -0.25)(LOSSES)
    _, applied = learned(0.5, -0.25, normalise=True)(LOSSES)
    assert sum(w.item() for w in applied.values()) / 2 == pytest.approx(1, rel=1e-12)
    ratio = plain["shape"] / plain["colour"]
    assert (applied["shape"] / applied["colour"]).item() == pytest.approx(ratio.item(), rel=1e-12)


def test_clamp_brings_log_variances_back_into_their_bounds() -> None:
    weighting = learned(100.0, -100.0)
    weighting.clamp()
    assert weighting.log_variance.tolist() == [6, -6]
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


# Balanced classes, unbalanced classes, many classes; the last item has no label.
LABELS = ([0, 0, 1, 1, -1], [0, 0, 0, 0, 1, -1], [0, 1, 2, 3, 4, 4, 0, -1])


def simplex(labels: list[int]) -> Tensor:
    """Returns unit rows z_BVD with one point per class, all classes equally far apart.

    Items without label form a class of their own.
    """
    _, class_B = torch.unique(torch.tensor(labels), return_inverse=True)
    K = int(class_B.max()) + 1
    corners_KK = torch.eye(K, dtype=torch.float64) - 1 / K
    z_BD = torch.nn.functional.normalize(corners_KK, dim=1)[class_B]
    return z_BD[:, None].expand(-1, 2, -1)


def measured(z_BVD: Tensor, relation: Relation, tau: float | Tensor) -> tuple[Tensor, Range]:
    """Returns the loss of one space and its range."""
    found = contrast([z_BVD], relation, tau)
    floor_H, ceiling_H = found.range()
    return found.loss[0], Range(floor_H[0], ceiling_H[0])


def ranged(floor: float, ceiling: float) -> Range:
    return Range(torch.tensor(floor).double(), torch.tensor(ceiling).double())


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
def test_the_floor_is_the_loss_of_classes_at_the_corners_of_a_simplex(
    labels: list[int], tau: float
) -> None:
    known = [label for label in labels if label != -1]
    loss, bounds = measured(simplex(known), EqualLabel(torch.tensor(known)), tau)
    assert loss.item() == pytest.approx(bounds.floor.item(), rel=1e-9)


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
def test_the_ceiling_is_the_loss_of_equal_embeddings(tau: float) -> None:
    relations: list[Relation] = [EqualLabel(torch.tensor(LABELS[0])), OwnView()]
    for relation in relations:
        loss, bounds = measured(torch.ones(5, 2, 1, dtype=torch.float64), relation, tau)
        assert bounds.ceiling.item() == pytest.approx(math.log(9), rel=1e-12)
        assert loss.item() == pytest.approx(math.log(9), rel=1e-12)


@pytest.mark.parametrize("relation", [
    EqualLabel(torch.arange(12) % 3),
    Near(random_rows(12, seed=1), bandwidth=0.2),
    LabelSets((random_rows(12, 4, seed=2) > 0.1).long(), threshold=0.3),
])  # fmt: skip
def test_a_streamed_loss_has_the_range_of_one_in_memory(
    relation: Relation, monkeypatch: pytest.MonkeyPatch
) -> None:
    z_BVD = random_rows(12, 2, 4, seed=0)
    loss, bounds = measured(z_BVD, relation, 0.2)
    monkeypatch.setattr(small_batch, "MOST_PAIRS", 0)
    streamed_loss, streamed = measured(z_BVD, relation, 0.2)
    torch.testing.assert_close(streamed_loss, loss)
    torch.testing.assert_close(streamed, bounds)


def test_noise_weighs_less_than_what_is_learned_up_to_a_bound() -> None:
    """Weights 1/L would differ by a factor of 1.5 at most (five classes, 128 rows)."""
    losses = {"noise": 4.8442, "half": 4.02345, "solved": 3.2027}
    ranges = dict.fromkeys(losses, ranged(3.2027, 4.8442))
    weighting = CalibratedVariance(tuple(losses), least_excess=0.1).double()
    with torch.no_grad():
        weighting.log_variance.copy_(torch.tensor([1, 0.5, 1e-9]).log())
    weighting.clamp()
    fixed = {task: torch.tensor(loss).double() for task, loss in losses.items()}
    objective, weights = weighting(fixed, ranges)
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert gradient.tolist() == pytest.approx([0, 0, 1], abs=1e-6)  # the bound keeps it from 0
    assert [w.item() for w in weights.values()] == pytest.approx([3 / 13, 6 / 13, 30 / 13])


def test_a_batch_of_one_class_weighs_nothing_and_teaches_nothing() -> None:
    labels = torch.zeros(4, dtype=torch.long)
    z_BVD = random_rows(4, 2, 3, seed=0).requires_grad_()
    one, range_of_one = measured(z_BVD, EqualLabel(labels), 0.1)
    two, range_of_two = measured(z_BVD, EqualLabel(torch.tensor([0, 0, 1, 1])), 0.1)
    weighting = CalibratedVariance(("one", "two")).double()
    ranges = {"one": range_of_one, "two": range_of_two}
    objective, weights = weighting({"one": one, "two": two}, ranges)
    assert weights["one"].item() == 0
    assert weights["two"].item() == pytest.approx(2)
    (gradient,) = torch.autograd.grad(objective, weighting.log_variance)
    assert gradient.ne(0).tolist() == [False, True]
    _, none = weighting({"one": one, "two": one}, dict.fromkeys(("one", "two"), range_of_one))
    assert [w.item() for w in none.values()] == [0, 0]


def test_the_encoder_s_gradient_is_the_applied_weight() -> None:
    losses = {t: torch.tensor(v).double().requires_grad_() for t, v in (("a", 3.5), ("b", 4.5))}
    ranges = {"a": ranged(3.0, 4.8), "b": ranged(4.1, 4.8)}
    objective, weights = CalibratedVariance(("a", "b")).double()(losses, ranges)
    gradients = torch.autograd.grad(objective, list(losses.values()))
    applied = [weights[task].item() for task in losses]
    assert [gradient.item() for gradient in gradients] == pytest.approx(applied, rel=1e-12)
    expected = sum(weights[t].item() * losses[t].item() for t in losses)
    assert objective.item() == pytest.approx(expected, rel=1e-12)
