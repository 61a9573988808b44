"""SimCLR, SimSiam and Barlow Twins: their losses, whatever the labels, and their heads."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import nt_xent
from mtcon_ray.losses.self_supervised import barlow_twins
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import SimSiamHead
from tests.losses.cases import VALUES, random_rows, raw
from tests.problems import problem

Z_BVD = random_rows(4, 2, 3, seed=0)


def simsiam_views() -> Tensor:
    """Returns rows [prediction | projection] of case D, [4, 2, 6].

    p1 is H and z2 is G; p2 is G and z1 is H, with their rows in reverse order.
    """
    prediction = torch.stack([raw("H"), raw("G").flip(0)], dim=1)
    return torch.cat([prediction, torch.stack([raw("H").flip(0), raw("G")], dim=1)], dim=2)


def make(name: str, **fields: Any) -> Method:
    return METHODS[name](METHODS.spec(name)(**fields), problem("shape"))


@pytest.mark.parametrize(
    ("name", "fields", "z_BVD", "expected"),
    [
        ("simclr", {"temperature": 0.3}, Z_BVD, nt_xent(Z_BVD, temperature=0.3).item()),
        ("simsiam", {}, simsiam_views(), VALUES["D_simsiam"]),
        ("barlow", {}, torch.stack([raw("H"), raw("G")], dim=1), 0.688596),
    ],
)
def test_loss_has_the_value_of_case_d_whatever_the_labels(
    name: str, fields: dict[str, float], z_BVD: Tensor, expected: float
) -> None:
    method = make(name, **fields)
    assert method.heads == ("instance",)
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        losses = method({"instance": z_BVD}, Batch(labels, 4)).losses
        assert losses["instance"].item() == pytest.approx(expected, rel=1e-6)


def test_every_head_of_barlow_twins_has_its_own_loss_and_lambda_is_the_spec_s() -> None:
    method = make("barlow", num_heads=2, off_diagonal=0.5)
    z_by_head = {head: random_rows(5, 2, 4, seed=i) for i, head in enumerate(method.heads)}
    expected = {head: barlow_twins(z, off_diagonal=0.5) for head, z in z_by_head.items()}
    assert method(z_by_head, Batch({}, 5)).losses == expected


def test_the_network_of_simsiam_has_heads_of_the_spec_s_widths() -> None:
    method = make("simsiam", num_heads=2, dim=6, hidden=7, predictor_hidden=3)
    network = method.make_network(Small(Small.Spec(width=4)))
    assert network.names == ("instance-1", "instance-2")
    for head in network.heads:
        assert isinstance(head, SimSiamHead)
        linear = [m.out_features for m in head.modules() if isinstance(m, nn.Linear)]
        assert linear == [7, 7, 6, 3, 6]
    rows = network(torch.randn(4, 3, 16, 16))
    assert [z.shape for z in rows.values()] == [(4, 12)] * 2
