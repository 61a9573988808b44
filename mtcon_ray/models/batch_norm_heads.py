"""Heads with batch norm: projectors of three layers, and a predictor on one (METHODS 11.5)."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class BatchNormProjector(nn.Sequential):
    """Linear-norm-ReLU twice, then Linear-norm without scale and shift: [N, width] to [N, dim]."""

    def __init__(self, width: int, *, dim: int, hidden: int) -> None:
        super().__init__(
            *_layer(width, hidden),
            *_layer(hidden, hidden),
            nn.Linear(hidden, dim, bias=False),
            nn.BatchNorm1d(dim, affine=False),
        )


class SimSiamHead(nn.Module):
    """A projector, and a predictor on it: rows [prediction | projection without gradient]."""

    def __init__(self, width: int, *, dim: int, hidden: int, predictor_hidden: int) -> None:
        super().__init__()
        self.projector = BatchNormProjector(width, dim=dim, hidden=hidden)
        self.predictor = nn.Sequential(
            *_layer(dim, predictor_hidden), nn.Linear(predictor_hidden, dim)
        )

    def forward(self, h_ND: Tensor) -> Tensor:
        """Rows [N, 2 dim]."""
        z_ND = self.projector(h_ND)
        return torch.cat([self.predictor(z_ND), z_ND.detach()], dim=1)


def _layer(before: int, after: int) -> Iterator[nn.Module]:
    """The norm's shift makes a bias idle."""
    yield nn.Linear(before, after, bias=False)
    yield nn.BatchNorm1d(after)
    yield nn.ReLU(inplace=True)
