"""The method SimSiam: loss, heads, settings."""

import pytest
import torch
from torch import nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.simsiam import SimSiam
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.heads import SimSiamHead
from tests.losses.cases import VALUES, simsiam_views
from tests.problems import problem


def test_loss_has_the_value_of_case_d_whatever_the_labels() -> None:
    method = SimSiam(SimSiam.Spec(), problem("shape"))
    z_BVD = torch.cat(simsiam_views(), dim=2)
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        losses = method({"instance": z_BVD}, Batch(labels, 4)).losses
        assert losses["instance"].item() == pytest.approx(VALUES["D_simsiam"], rel=1e-6)


def test_the_network_has_heads_of_the_spec_s_widths() -> None:
    spec = SimSiam.Spec(num_heads=2, dim=6, hidden=7, predictor_hidden=3)
    network = SimSiam(spec, problem("shape")).make_network(Small(Small.Spec(width=4)))
    assert network.names == ("instance-1", "instance-2")
    for head in network.heads:
        assert isinstance(head, SimSiamHead)
        linear = [m.out_features for m in head.modules() if isinstance(m, nn.Linear)]
        assert linear == [7, 7, 6, 3, 6]
    rows = network(torch.randn(4, 3, 16, 16))
    assert [z.shape for z in rows.values()] == [(4, 12)] * 2
