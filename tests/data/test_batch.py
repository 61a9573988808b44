"""Copies to the device: many values in one copy."""

from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.data.batch import send_together

VALUES = [
    torch.tensor([True, False, True]),
    torch.arange(6).view(2, 3).T,  # not contiguous
    torch.tensor([], dtype=torch.int64),
    torch.tensor([[0.5, -1.5, 2.5]]),
    torch.tensor(7),
    torch.ones(5, 4)[:1, 2],  # contiguous by its one element, whatever its stride
    torch.ones(5, 4)[:0, 2],
    torch.tensor([3, 4], dtype=torch.uint8),
]


def test_values_sent_together_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy on the CPU stands in for the one to the GPU."""
    send = Mock(side_effect=lambda values, device: values.clone())
    monkeypatch.setattr("mtcon_ray.data.batch.send", send)
    found = send_together(VALUES, torch.device("cuda"))
    send.assert_called_once()
    for one, expected in zip(found, VALUES, strict=True):
        assert one.dtype == expected.dtype
        assert torch.equal(one, expected)
