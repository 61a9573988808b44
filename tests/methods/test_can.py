"""The method CAN: three weighted losses, and AMCL in place of the contrastive one."""

from typing import Any

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import nt_xent
from mtcon_ray.losses.amcl import amcl
from mtcon_ray.methods.autoencoding import CAN
from mtcon_ray.models.encoders.vit import ViT
from tests.losses.cases import random_rows
from tests.problems import problem

BATCH = Batch({}, 6)


def make(**fields: Any) -> CAN:
    return CAN(CAN.Spec(**fields), problem("a", encoder="vit"))


def rows(*heads: str) -> dict[str, Tensor]:
    """Returns unit rows [6, 2, 4] of each head, and errors [6, 2, 1]."""
    z_by_head = {head: random_rows(6, 2, 4, seed=i) for i, head in enumerate(heads)}
    errors = random_rows(6, 2, 2, seed=9).abs()
    return z_by_head | {"reconstruction": errors[:, :, :1], "noise": errors[:, :, 1:]}


@pytest.mark.parametrize("weights", [(0.03, 0.67, 0.3), (2.0, 0.0, 0.5)])
def test_objective_is_the_weighted_sum_of_three_losses(weights: tuple[float, ...]) -> None:
    names = ("contrast_weight", "reconstruction_weight", "noise_weight")
    given = dict(zip(names, weights, strict=True)) if weights[0] > 1 else {}
    method, z_by_head = make(temperature=0.2, **given), rows("instance")
    objective = method.weighting(method(z_by_head, BATCH).losses).objective
    contrast = nt_xent(z_by_head["instance"], temperature=0.2)
    error, noise = z_by_head["reconstruction"].mean(), z_by_head["noise"].mean()
    expected = weights[0] * contrast + weights[1] * error + weights[2] * noise
    torch.testing.assert_close(objective, expected)


def test_amcl_s_term_takes_the_place_of_infonce() -> None:
    """Eq. 2.4 is summed over the heads with one temperature network; the errors do not change."""
    settings: dict[str, Any] = {"beta": 0.3, "tau_min": 0.05, "tau_max": 1.5}
    method = make(contrast="amcl", num_heads=2, **settings).double()
    z_by_head = rows("instance-1", "instance-2")
    losses = method(z_by_head, BATCH).losses
    heads, net = {h: z_by_head[h] for h in method.instance_heads}, method.temperature_net
    expected = amcl(heads, form="infonce", temperature_net=net, **settings)
    torch.testing.assert_close(losses["instance-1"] + losses["instance-2"], expected)
    plain = make(num_heads=2)(z_by_head, BATCH).losses
    assert losses["noise"] == plain["noise"]
    assert losses["reconstruction"] == plain["reconstruction"]
    expected.backward()
    assert all(p.grad is not None for p in method.parameters())


def test_half_of_the_patches_of_every_view_are_hidden() -> None:
    method = make()
    network = method.make_network(ViT(ViT.Spec(patch=4, width=16, depth=1, heads=2)))
    assert (network.mask_ratio, network.noise_level) == (0.5, 0.05)
    assert network.decoder.level is not None
    assert tuple(network(torch.zeros(2, 3, 16, 16))) == method.heads
