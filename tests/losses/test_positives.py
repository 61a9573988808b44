"""Positives: sums over classes against sums over the pairs of a mask."""

import pytest
import torch
from torch import Tensor

from mtcon_ray.losses.contrastive import contrast_by_head
from mtcon_ray.losses.positives import EqualLabel, Near, OwnView, Relation


@pytest.mark.parametrize("labels", [[2**24, 2**24 + 1], [2**62, 2**62 + 1]])
def test_labels_that_no_float_tells_apart_are_no_partners(labels: list[int]) -> None:
    """Labels may be hashes."""
    z_BVD = torch.zeros(2, 2, 3)
    pull_NN = EqualLabel(torch.tensor(labels)).pairs(z_BVD).pull_HNN[0]
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
    near = Near(torch.tensor([0.0, 1.0, 2.0, 3.0]), bandwidth=1.0)
    relations |= {"f": near, "g": near}
    relations |= {"h": relations["a"], "i": relations["b"]}
    temperatures: dict[str, float | Tensor] = dict.fromkeys(z_by_head, 0.1)
    temperatures |= {"d": torch.tensor(0.1), "e": torch.tensor(0.2), "h": 0.2, "i": 0.3}
    found = contrast_by_head(z_by_head, relations, temperatures)
    groups = {tuple(heads): each.relation for heads, each in found}
    alone = [("wide",), ("d", "e"), ("f",), ("g",), ("h",), ("i",)]
    assert list(groups) == [("a", "b"), *alone]
