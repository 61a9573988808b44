"""The method Barlow Twins: loss, heads, settings."""

import pytest
import torch

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.self_supervised import barlow_twins
from mtcon_ray.methods.barlow import BarlowTwins
from tests.losses.cases import random_rows, raw
from tests.problems import problem


def test_loss_has_the_value_of_case_d_whatever_the_labels() -> None:
    method = BarlowTwins(BarlowTwins.Spec(), problem("shape"))
    z_BVD = torch.stack([raw("H"), raw("G")], dim=1)
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        losses = method({"instance": z_BVD}, Batch(labels, 4)).losses
        assert losses["instance"].item() == pytest.approx(0.688596, abs=5e-7)


def test_every_head_has_its_own_loss_and_lambda_is_the_spec_s() -> None:
    method = BarlowTwins(BarlowTwins.Spec(num_heads=2, off_diagonal=0.5), problem("shape"))
    z_by_head = {head: random_rows(5, 2, 4, seed=i) for i, head in enumerate(method.heads)}
    expected = {head: barlow_twins(z, off_diagonal=0.5) for head, z in z_by_head.items()}
    assert method(z_by_head, Batch({}, 5)).losses == expected
