"""The method SimSiam: loss, heads, settings."""

import pytest
import torch
from torch import nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.self_supervised import simsiam
from mtcon_ray.methods.simsiam import SimSiam
from mtcon_ray.models.batch_norm_heads import SimSiamHead
from mtcon_ray.models.encoders.small import Small
from tests.losses.cases import VALUES, random_rows, simsiam_views
from tests.problems import problem


def test_loss_has_the_value_of_case_d_whatever_the_labels() -> None:
    method = SimSiam(SimSiam.Spec(), problem("shape"))
    z_BVD = torch.cat(simsiam_views(), dim=2)
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        losses = method({"instance": z_BVD}, Batch(labels, 4)).losses
        assert losses["instance"].item() == pytest.approx(VALUES["D_simsiam"], rel=1e-6)


def test_every_head_has_its_own_loss() -> None:
    method = SimSiam(SimSiam.Spec(num_heads=2), problem("shape"))
    z_by_head = {head: random_rows(3, 2, 8, seed=i) for i, head in enumerate(method.heads)}
    expected = {head: simsiam(*z.chunk(2, dim=2)) for head, z in z_by_head.items()}
    assert method(z_by_head, Batch({}, 3)).losses == expected


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


def test_widths_are_the_paper_s_unless_set() -> None:
    spec = SimSiam.Spec()
    assert (spec.dim, spec.hidden, spec.predictor_hidden) == (2048, 2048, 512)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"num_views must be at least 2 .* got 1"):
        SimSiam.Spec().check(problem("shape", num_views=1))
