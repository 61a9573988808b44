"""Heads with batch norm: projectors of three layers, and SimSiam's predictor on a projector.

Layers and default widths are as in SimSiam, Chen and He 2021, arXiv:2011.10566. Barlow Twins
uses the same projector here, as in AMCL's code.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class BatchNormProjector(nn.Sequential):
    """Projector, [N, width] to [N, dim]: Linear-norm-ReLU twice, then Linear-norm.

    The last norm has no scale and shift, so columns have mean 0 and variance 1 over the batch.
    """

    def __init__(self, width: int, *, dim: int, hidden: int) -> None:
        super().__init__(
            *_layer(width, hidden),
            *_layer(hidden, hidden),
            nn.Linear(hidden, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False),
        )


class SimSiamHead(nn.Module):
    """A projector, and a predictor on its output."""

    def __init__(self, width: int, *, dim: int, hidden: int, predictor_hidden: int) -> None:
        super().__init__()
        self.projector = BatchNormProjector(width, dim=dim, hidden=hidden)
        self.predictor = nn.Sequential(
            *_layer(dim, predictor_hidden), nn.Linear(predictor_hidden, dim)
        )

    def forward(self, h_ND: Tensor) -> Tensor:
        """Returns rows [prediction | projection], [N, 2 dim]. The projection has no gradient."""
        z_ND = self.projector(h_ND)
        return torch.cat([self.predictor(z_ND), z_ND.detach()], dim=1)


def _layer(before: int, after: int) -> Iterator[nn.Module]:
    """Yields Linear, BatchNorm and ReLU, without bias, because the norm would subtract it."""
    yield nn.Linear(before, after, bias=False)
    yield nn.BatchNorm1d(after)
    yield nn.ReLU(inplace=True)
