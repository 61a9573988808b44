"""Heads, trained on the encoder's features and usually discarded afterwards.

Layers and default widths of the heads with batch norm are as in SimSiam, Chen and He 2021,
arXiv:2011.10566. Barlow Twins uses the same projector here, as in AMCL's code.
"""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Shorter rows are divided by this instead of by their length, so the gradient is at most 1e6 times
# the gradient on the unit row.
SHORTEST = 1e-6


class ProjectionHead(nn.Sequential):
    """Projection head, [N, width] to unit rows [N, dim]: Linear-ReLU-Linear, normalised.

    Khosla et al. 2020, arXiv:2004.11362, sec. 3.1. A row shorter than SHORTEST keeps its direction
    and is shorter than 1. Its gradient is finite.
    """

    def __init__(self, width: int, *, dim: int, hidden: int | None) -> None:
        hidden = width if hidden is None else hidden
        super().__init__(nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))

    def forward(self, h_ND: Tensor) -> Tensor:
        """Returns unit rows, [N, dim]."""
        return F.normalize(super().forward(h_ND), dim=1, eps=SHORTEST)


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
