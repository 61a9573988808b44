"""Half precision is computed in float32 by every loss, with and without autocast."""

from collections.abc import Callable
from functools import partial
from typing import get_args

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.losses import amcl, triplet
from mtcon_ray.losses.numeric import cross_entropy
from mtcon_ray.losses.positives import EqualLabel
from mtcon_ray.losses.self_supervised import barlow_twins, moco, simsiam
from mtcon_ray.spec.methods.self_supervised import Form
from tests.losses.cases import contrastive, random_rows

ITEMS = torch.arange(6)


def adaptive(z: Tensor, form: Form) -> Tensor:
    queues = {"a": torch.eye(4, dtype=z.dtype)}
    return amcl({"a": z}, form=form, temperature_net=nn.Identity(), beta=0.1, queue_by_head=queues)


# Lengths of rows with squares or exponentials that overflow float16.
LENGTHS = {"cross-entropy": 30, "masked": 300, "fused": 300, "embedding": 300}
# Of rows [6, 2, 8].
LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "cross-entropy": lambda z: cross_entropy(z, ITEMS),
    "contrastive": lambda z: contrastive(z, EqualLabel(ITEMS % 3), temperature=0.01),
    "simsiam": lambda z: simsiam(z, z),
    "barlow": barlow_twins,
    "moco": lambda z: moco(z, z, z[:, 1], temperature=0.1),
    "masked": lambda z: triplet.masked_distances(z, z[:, 0].abs()),
    "fused": lambda z: triplet.fused_distances(z, z[:, 0].abs(), z.new_ones(6, 1, 6)),
    "embedding": triplet.embedding_size,
    **{f"amcl {form}": partial(adaptive, form=form) for form in get_args(Form)},
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_computed_in_float32(name: str, dtype: torch.dtype) -> None:
    z_BVD = (LENGTHS.get(name, 1) * random_rows(6, 2, 8, seed=0)).to(dtype)
    exact = LOSSES[name](z_BVD.float())
    assert exact.isfinite().all()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = LOSSES[name](z_BVD)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, exact)
