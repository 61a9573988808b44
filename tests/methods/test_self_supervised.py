"""SimCLR, SimSiam and Barlow Twins: their losses, whatever the labels, and their heads."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import nt_xent
from mtcon_ray.losses.self_supervised import barlow_twins, simsiam
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import SimSiamHead
from tests.losses.cases import random_rows
from tests.problems import problem


def make(name: str, **fields: Any) -> Method:
    return METHODS[name](METHODS.spec(name)(**fields), problem("shape"))


OWN_LOSSES = [
    ("simclr", {"temperature": 0.3}, partial(nt_xent, temperature=0.3)),
    ("simsiam", {}, lambda z_BVD: simsiam(*z_BVD.chunk(2, dim=2))),
    ("barlow", {"off_diagonal": 0.5}, partial(barlow_twins, off_diagonal=0.5)),
]


@pytest.mark.parametrize(("name", "fields", "loss"), OWN_LOSSES)
def test_every_head_has_its_own_loss_whatever_the_labels(name: str, fields: Any, loss: Any) -> None:
    assert make(name).heads == ("instance",)
    method = make(name, num_heads=2, **fields)
    z_by_head = {head: random_rows(4, 2, 6, seed=i) for i, head in enumerate(method.heads)}
    expected = {head: loss(z_BVD) for head, z_BVD in z_by_head.items()}
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        assert method(z_by_head, Batch(labels, 4)).losses == expected


def test_the_network_of_simsiam_has_heads_of_the_spec_s_widths() -> None:
    method = make("simsiam", num_heads=2, dim=6, hidden=7, predictor_hidden=3)
    network = method.make_network(Small(Small.Spec(width=4)))
    assert network.names == ("instance-1", "instance-2")
    for head in network.heads:
        assert isinstance(head, SimSiamHead)
        linear = [m.out_features for m in head.modules() if isinstance(m, nn.Linear)]
        assert linear == [7, 7, 6, 3, 6]
    assert [z.shape for z in network(torch.randn(4, 3, 16, 16)).values()] == [(4, 12)] * 2
