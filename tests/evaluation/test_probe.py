"""Test of the items with a known label."""

import pytest
import torch
from torch import Tensor

from mtcon_ray.evaluation.probe import LabelledFeatures


@pytest.mark.parametrize(
    ("labels", "known"),
    [
        (torch.tensor([1, -1, 0]), [1, 0]),
        (torch.tensor([0.5, torch.nan, -1]), [0.5, -1]),
        (torch.tensor([[1, 255], [255, 255], [0, 0]], dtype=torch.uint8), [[1, 255], [0, 0]]),
    ],
)
def test_known_keeps_items_with_a_value(labels: Tensor, known: list[object]) -> None:
    """An item of a label set stays if one of its bits is known."""
    found = LabelledFeatures(torch.arange(3.0)[:, None], {"a": labels}).known("a")
    assert found.features.flatten().tolist() == [0, 2]
    assert found.labels["a"].tolist() == known
