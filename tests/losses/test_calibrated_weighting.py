"""Calibrated weights: the floor and ceiling of a loss, and the weights learned from its excess."""

import math

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.calibrated_weighting import CalibratedVariance
from mtcon_ray.losses.contrastive import Range, contrast
from mtcon_ray.losses.positives import EqualLabel, LabelSets, Near, OwnView, Relation
from tests.losses.cases import random_rows

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


def learned(
    losses: dict[str, float], ranges: dict[str, Range], steps: int = 400
) -> dict[str, float]:
    """Returns the weights that are applied after descent on s at fixed losses."""
    weighting = CalibratedVariance(tuple(losses), least_excess=0.1).double()
    optimizer = torch.optim.SGD(weighting.parameters(), lr=0.05, momentum=0.9)
    fixed = {task: torch.tensor(loss).double() for task, loss in losses.items()}
    for _ in range(steps):
        optimizer.zero_grad()
        weighting(fixed, ranges).objective.backward()
        optimizer.step()
        weighting.clamp()
    weights = weighting(fixed, ranges).weight_by_task
    return {task: weight.item() for task, weight in weights.items()}


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
    ranges = dict.fromkeys(("noise", "half", "solved"), ranged(3.2027, 4.8442))
    losses = {"noise": 4.8442, "half": 4.02345, "solved": 3.2027}
    weights = learned(losses, ranges)
    assert weights["half"] / weights["noise"] == pytest.approx(2, rel=1e-3)
    assert weights["solved"] / weights["noise"] == pytest.approx(10, rel=1e-3)
    assert sum(weights.values()) == pytest.approx(3, rel=1e-9)


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
