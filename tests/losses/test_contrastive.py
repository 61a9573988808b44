"""The contrastive loss: reference values, the equation as loops, invariances, invalid input."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.positives import EqualLabel, LabelSets, Near, OwnView, Relation
from tests.losses.cases import VALUES, at_angles, contrastive, random_rows

exhaustively = settings(deadline=None, derandomize=True, max_examples=60)
items, widths, seeds = st.integers(1, 6), st.integers(1, 5), st.integers(0, 10_000)
temperatures = st.floats(-3, 1).map(lambda exponent: 10.0**exponent)


def random_labels(B: int, seed: int) -> Tensor:
    """Returns labels of three classes, whose numbers are not consecutive, and -1."""
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.tensor([-1, 0, 7, 40])[torch.randint(0, 4, (B,), generator=generator)]


def as_loops(z_BVD: Tensor, labels: list[int] | None, tau: float) -> list[float | None]:
    """Returns the loss of each anchor, None for anchors without positives.

    Khosla et al. 2020, arXiv:2004.11362, eq. 2, written as loops. With labels None, positives are
    the other views of the item: NT-Xent, Chen et al. 2020, arXiv:2002.05709, eq. 1.
    """
    B, V, _ = z_BVD.shape
    rows = [(b, v) for b in range(B) for v in range(V)]
    z = {(b, v): z_BVD[b, v].tolist() for b, v in rows}
    losses: list[float | None] = []
    for i in rows:
        others = [a for a in rows if a != i]
        logit = {a: sum(p * q for p, q in zip(z[i], z[a], strict=True)) / tau for a in others}
        if labels is None:
            partners = [a for a in others if a[0] == i[0]]
        else:
            partners = [a for a in others if labels[a[0]] == labels[i[0]] != -1]
        top = max(logit.values())
        log_sum = top + math.log(sum(math.exp(x - top) for x in logit.values()))
        terms = [log_sum - logit[p] for p in partners]
        losses.append(sum(terms) / len(terms) if terms else None)
    return losses


def test_case_b_anchors_without_partner_count_zero_and_leave_the_mean() -> None:
    z_BVD = at_angles(VALUES["B"]["angles"])
    relation = EqualLabel(torch.tensor(VALUES["B"]["labels"]))

    def value(reduction: str) -> Tensor:
        return contrastive(z_BVD, relation, temperature=0.1, reduction=reduction)

    assert value("none").flatten().tolist() == pytest.approx(VALUES["B"]["per_anchor"], rel=1e-6)
    assert value("mean").item() == pytest.approx(VALUES["B"]["mean_valid"], rel=1e-6)
    assert value("sum").item() == pytest.approx(VALUES["B"]["sum"], rel=1e-6)


@exhaustively
@given(B=items, V=st.integers(2, 3), D=widths, seed=seeds, tau=temperatures)
def test_agrees_with_the_equation_as_loops(B: int, V: int, D: int, seed: int, tau: float) -> None:
    z_BVD, labels_B = random_rows(B, V, D, seed=seed), random_labels(B, seed)
    relations: list[Relation] = [EqualLabel(labels_B), OwnView()]
    for relation, labels in zip(relations, (labels_B.tolist(), None), strict=True):
        expected = as_loops(z_BVD, labels, tau)
        valid = [x for x in expected if x is not None]
        loss_BV = contrastive(z_BVD, relation, temperature=tau, reduction="none")
        per_anchor = [0.0 if x is None else x for x in expected]
        assert loss_BV.flatten().tolist() == pytest.approx(per_anchor, rel=1e-9, abs=1e-9)
        mean = contrastive(z_BVD, relation, temperature=tau).item()
        assert mean == pytest.approx(sum(valid) / max(len(valid), 1), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("V", "relation"),
    [
        (1, EqualLabel(torch.arange(3))),
        (2, EqualLabel(torch.full((3,), -1))),
        (2, LabelSets(torch.full((3, 4), 255, dtype=torch.uint8), threshold=0.0)),
        (2, Near(torch.full((3,), math.nan), bandwidth=1.0)),
    ],
)
def test_a_batch_without_any_partner_gives_zero_and_zero_gradient(
    V: int, relation: Relation
) -> None:
    z_BVD = random_rows(3, V, 4, seed=0).requires_grad_()
    loss = contrastive(z_BVD, relation, temperature=0.1)
    (gradient_BVD,) = torch.autograd.grad(loss, z_BVD)
    assert loss.item() == 0
    assert torch.equal(gradient_BVD, torch.zeros_like(z_BVD))


@pytest.mark.parametrize("most_pairs", [0, 2**20])
def test_autocast_reaches_neither_loss_nor_gradient(
    most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
    z_BVD = random_rows(8, 2, 16, seed=0).float().requires_grad_()

    def found(autocast: bool) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = contrastive(z_BVD, EqualLabel(torch.arange(8) % 3), temperature=0.1)
        return loss, *torch.autograd.grad(loss, z_BVD)

    for one, other in zip(found(True), found(False), strict=True):
        assert torch.equal(one, other)


def test_an_unknown_reduction_raises() -> None:
    with pytest.raises(ValueError, match=r"reduction must be .* got 'average'"):
        contrastive(torch.ones(2, 2, 2), OwnView(), temperature=0.1, reduction="average")
