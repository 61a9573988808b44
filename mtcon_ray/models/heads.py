"""What stands on the encoder in training, one module per head, thrown away afterwards."""

import torch.nn.functional as F
from torch import Tensor, nn

SHORTEST = 1e-6


class ProjectionHead(nn.Sequential):
    """Linear-ReLU-Linear to unit rows (METHODS 0.1): [N, width] to [N, dim].

    A row shorter than SHORTEST keeps its direction and is not unit; its gradient is finite.
    """

    def __init__(self, width: int, *, dim: int, hidden: int | None) -> None:
        hidden = width if hidden is None else hidden
        super().__init__(nn.Linear(width, hidden), nn.ReLU(inplace=True), nn.Linear(hidden, dim))

    def forward(self, h_ND: Tensor) -> Tensor:
        """Unit rows, [N, dim]."""
        return F.normalize(super().forward(h_ND), dim=1, eps=SHORTEST)


class LinearHead(nn.Linear):
    """One linear layer, not normalised, [N, width] to [N, outputs]: logits, or CSN's embedding."""

    def __init__(self, width: int, *, outputs: int) -> None:
        super().__init__(width, outputs)
