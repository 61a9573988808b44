"""Heads, trained on the encoder's features and usually discarded afterwards."""

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
