"""The method SimCLR, which uses no labels."""

import torch

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import nt_xent
from mtcon_ray.methods.simclr import SimCLR
from tests.problems import problem


def test_loss_is_nt_xent_whatever_the_labels() -> None:
    method = SimCLR(SimCLR.Spec(temperature=0.3), problem("shape", "colour"))
    z_BVD = torch.nn.functional.normalize(
        torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(0)), dim=2
    )
    assert method.heads == ("instance",)
    expected = nt_xent(z_BVD, temperature=0.3)
    for labels in ({}, {"shape": torch.tensor([0, 0, -1, 1])}):
        assert method({"instance": z_BVD}, Batch(labels, 4)).losses == {"instance": expected}
