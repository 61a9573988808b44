"""The contrastive loss: batches without partners, groups of heads, invalid input."""

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.contrastive import contrast_by_head
from mtcon_ray.losses.positives import EqualLabel, LabelSets, OwnView, Relation
from tests.losses.cases import contrastive, random_rows

WITHOUT_PARTNERS = [
    (1, EqualLabel(torch.arange(3))),
    (2, EqualLabel(torch.full((3,), -1))),
    (2, LabelSets(torch.full((3, 4), 255, dtype=torch.uint8), threshold=0.0)),
]


@pytest.mark.parametrize(("V", "relation"), WITHOUT_PARTNERS)
def test_a_batch_without_partners_gives_zero_and_zero_gradient(V: int, relation: Relation) -> None:
    z_BVD = random_rows(3, V, 4, seed=0).requires_grad_()
    loss = contrastive(z_BVD, relation, temperature=0.1)
    (gradient_BVD,) = torch.autograd.grad(loss, z_BVD)
    assert loss.item() == 0
    assert torch.equal(gradient_BVD, torch.zeros_like(z_BVD))


@pytest.mark.parametrize("most_pairs", [0, 2**20])
def test_no_loss_or_gradient_is_autocast(most_pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("labels", [[2**24, 2**24 + 1], [2**62, 2**62 + 1]])
def test_labels_that_no_float_tells_apart_are_no_partners(labels: list[int]) -> None:
    """Labels may be hashes."""
    pull_NN = EqualLabel(torch.tensor(labels)).pairs(torch.zeros(2, 2, 3))[0][0]
    assert pull_NN.nonzero().tolist() == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_spaces_of_a_kind_width_and_temperature_are_computed_together() -> None:
    """Stacked heads keep their labels. Another kind or width makes another group.

    So does another temperature, unless both are tensors.
    """
    z_by_head = {name: torch.randn(4, 2, 3) for name in "abdefghi"}
    z_by_head |= {"wide": torch.randn(4, 2, 5)}
    labels = {"a": [0, 0, 1, -1], "b": [5, 4, 4, 5], "wide": [0, 0, 0, 0]}
    relations: dict[str, Relation] = {h: EqualLabel(torch.tensor(y)) for h, y in labels.items()}
    relations |= {"d": OwnView(), "e": OwnView()}
    sets = LabelSets(torch.eye(4), threshold=0.5)
    relations |= {"f": sets, "g": sets}
    relations |= {"h": relations["a"], "i": relations["b"]}
    temperatures: dict[str, float | Tensor] = dict.fromkeys(z_by_head, 0.1)
    temperatures |= {"d": torch.tensor(0.1), "e": torch.tensor(0.2), "h": 0.2, "i": 0.3}
    groups = [tuple(heads) for heads, _ in contrast_by_head(z_by_head, relations, temperatures)]
    assert groups == [("a", "b"), ("wide",), ("d", "e"), ("f",), ("g",), ("h",), ("i",)]
