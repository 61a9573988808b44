"""One shared encoder, and named heads on its features."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from mtcon_ray.models.convolution import guard_convolutions
from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.models.spec import ModelSpec


class Network(nn.Module):
    """Images [N, 3, H, W] to features [N, width] to rows [N, its own width] of each head.

    Heads are kept in order, not by name: a name may hold any character, and a parameter's name
    may not. `probed` names the head whose rows stand for an image after training; without one
    the encoder's features do.

    `progress` is the share of training that is done, in [0, 1), set before each step.
    `skips_parameters` tells that a step may leave some of them without a gradient.
    """

    progress: float = 0.0
    skips_parameters: bool = False

    def __init__(
        self, encoder: Encoder, heads: Mapping[str, nn.Module], *, probed: str | None = None
    ) -> None:
        super().__init__()
        assert probed is None or probed in heads, probed
        self.encoder = encoder
        self.names = tuple(heads)
        self.heads = nn.ModuleList(heads.values())
        self.probed = probed

    def features(self, x_NCHW: Tensor) -> Tensor:
        """What is probed, [N, width]: the encoder's pooled features, under autocast in its dtype.

        With `probed`, that head's rows instead.
        """
        h_ND: Tensor = self.encoder(x_NCHW)
        if self.probed is None:
            return h_ND
        return self.apply_heads(h_ND)[self.probed]

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Each head's rows, in float32 at least, whatever the autocast."""
        return self.apply_heads(self.encoder(x_NCHW))

    def apply_heads(self, h_ND: Tensor) -> dict[str, Tensor]:
        """Each head's rows from pooled features."""
        with torch.autocast(h_ND.device.type, enabled=False):
            h_ND = h_ND if h_ND.dtype == torch.float64 else h_ND.float()
            return {name: head(h_ND) for name, head in zip(self.names, self.heads, strict=True)}


def projections(
    names: tuple[str, ...], *, dim: int, hidden: int | None
) -> Callable[[Encoder], Network]:
    """Makes a network with one projection head per name."""

    def make(encoder: Encoder) -> Network:
        return Network(
            encoder, {name: ProjectionHead(encoder.width, dim=dim, hidden=hidden) for name in names}
        )

    return make


def build_network(spec: ModelSpec, make: Callable[[Encoder], Network], seed: int) -> Network:
    """What `make` puts on the spec's encoder, on the CPU; parameters depend on the arguments alone.

    The caller's random state is as before. Raises SpecError or CheckpointError where the
    encoder's `weights` cannot be had.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make(ENCODERS[spec.encoder.name](spec.encoder))
    guard_convolutions(network)
    return network
