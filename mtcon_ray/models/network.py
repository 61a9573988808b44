"""The network: a shared encoder, and named heads on its features."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from mtcon_ray.base.plugins import check_shape
from mtcon_ray.models.convolution import guard_convolutions
from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.encoders.base import fetched
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.spec.encoders import ModelSpec


class Network(nn.Module):
    """Maps images [N, 3, H, W] to features [N, width], and these to each head's rows.

    `probed`: head for the features of an image after training, or None for the encoder's
    features.
    `progress`: finished share of training, in [0, 1), set before each step.
    `phase`: changes with `progress` where the operations of a step change.
    `skips_parameters`: True if a step may leave parameters without a gradient.
    """

    progress: float = 0.0
    skips_parameters: bool = False

    def __init__(
        self, encoder: Encoder, heads: Mapping[str, nn.Module], *, probed: str | None = None
    ) -> None:
        super().__init__()
        assert probed is None or probed in heads, probed
        self.encoder = encoder
        # A list, not nn.ModuleDict: names of heads may hold dots, names of modules may not.
        self.heads = nn.ModuleList(heads.values())
        self.names, self.probed = tuple(heads), probed

    @property
    def phase(self) -> int:
        """The phase of training at this `progress`."""
        return 0

    def features(self, x_NCHW: Tensor) -> Tensor:
        """Returns the features for the probes, [N, width].

        These are the rows of the head `probed`. If `probed` is None, they are the encoder's pooled
        features, in autocast's dtype.
        """
        h_ND = self.encode(x_NCHW)
        if self.probed is None:
            return h_ND
        return self.apply_heads(h_ND)[self.probed]

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Returns each head's rows [N, width of the head], in float32 at least, autocast or not."""
        return self.apply_heads(self.encode(x_NCHW))

    def encode(self, x_NCHW: Tensor) -> Tensor:
        """Returns the encoder's pooled features, [N, width]. Raises SpecError for another shape."""
        h_ND: Tensor = self.encoder(x_NCHW)
        what = f"encoder {self.encoder.spec.name!r}: the features"
        way_out = "return a row of self.width features per image from forward"
        check_shape(what, h_ND, (len(x_NCHW), self.encoder.width), way_out)
        return h_ND

    def apply_heads(self, h_ND: Tensor) -> dict[str, Tensor]:
        """Returns each head's rows from pooled features [N, width]."""
        # In bfloat16 unit rows would have length 1 only up to 1e-2.
        with torch.autocast(h_ND.device.type, enabled=False):
            h_ND = h_ND if h_ND.dtype == torch.float64 else h_ND.float()
            return {name: head(h_ND) for name, head in zip(self.names, self.heads, strict=True)}


def projections(
    names: tuple[str, ...], *, dim: int, hidden: int | None
) -> Callable[[Encoder], Network]:
    """Returns a function that builds a network with a projection head per name."""

    def make(encoder: Encoder) -> Network:
        heads = {name: ProjectionHead(encoder.width, dim=dim, hidden=hidden) for name in names}
        return Network(encoder, heads)

    return make


def build_network(
    spec: ModelSpec, make: Callable[[Encoder], Network], seed: int, *, store: Path | None = None
) -> Network:
    """Returns the network built by `make` on the spec's encoder, on the CPU.

    Downloads are taken from `store`, where the driver has put them, or else from the library.
    Parameters depend on the arguments alone. The caller's random state is kept. Raises SpecError
    or CheckpointError if the encoder's `weights` are not available or do not fit.
    """
    encoder = fetched(spec.encoder, store)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make(ENCODERS[encoder.name](encoder))
    guard_convolutions(network)
    return network
