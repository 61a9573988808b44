"""One shared encoder and a projection head per name."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.spec import ModelSpec

SHORTEST = 1e-6


class Network(nn.Module):
    """Images [N, 3, H, W] to features [N, width] to unit rows [N, head_dim] per head.

    A head is Linear-ReLU-Linear (METHODS 0.1). Heads are kept in order, not by name: a name
    may hold any character, and a parameter's name may not.
    """

    def __init__(
        self,
        encoder: Encoder,
        heads: tuple[str, ...],
        *,
        head_dim: int,
        head_hidden: int | None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.names = heads
        hidden = encoder.width if head_hidden is None else head_hidden
        self.heads = nn.ModuleList(
            nn.Sequential(
                nn.Linear(encoder.width, hidden),
                nn.ReLU(inplace=True),
                nn.Linear(hidden, head_dim),
            )
            for _ in heads
        )

    def features(self, x_NCHW: Tensor) -> Tensor:
        """The encoder's pooled features, [N, width]; under autocast in its dtype."""
        h_ND: Tensor = self.encoder(x_NCHW)
        return h_ND

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Each head's unit rows, [N, head_dim] in float32 at least, whatever the autocast.

        A row shorter than SHORTEST keeps its direction and is not unit; its gradient is finite.
        """
        h_ND = self.features(x_NCHW)
        with torch.autocast(h_ND.device.type, enabled=False):
            h_ND = h_ND if h_ND.dtype == torch.float64 else h_ND.float()
            return {
                name: F.normalize(head(h_ND), dim=1, eps=SHORTEST)
                for name, head in zip(self.names, self.heads, strict=True)
            }


def build_network(spec: ModelSpec, heads: tuple[str, ...], seed: int) -> Network:
    """A network on the CPU whose parameters depend on the arguments alone.

    The caller's random state is as before. Raises SpecError or CheckpointError where the
    encoder's `weights` cannot be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = ENCODERS[spec.encoder.name](spec.encoder)
        return Network(encoder, heads, head_dim=spec.head_dim, head_hidden=spec.head_hidden)
