"""The network: a shared encoder, and named heads on its features.

Heads are usually discarded after training. Layers and default widths of the heads with batch norm
are as in SimSiam, Chen and He 2021, arXiv:2011.10566. Barlow Twins uses the same projector here, as
in AMCL's code.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mtcon_ray.base.plugins import check_shape
from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.encoders.base import fetched
from mtcon_ray.spec.encoders import ModelSpec

# Shorter rows are divided by this instead of by their length, so the gradient is at most 1e6 times
# the gradient on the unit row.
SHORTEST = 1e-6
# Numbers in a register of AVX2, for `GuardedConv2d`.
LANES = 8


class Network(nn.Module):
    """Maps images [N, 3, H, W] to features [N, width], and these to each head's rows.

    `probed`: head for the features of an image after training, or None for the encoder's
    features.
    `progress`: finished share of training, in [0, 1), set before each step.
    `phase`: changes with `progress` where the operations of a step change.
    `skips_parameters`: True if a step may leave parameters without a gradient.
    `num_errors`: number of rows [N, 1] in the result of `forward` after the rows of the heads.
    """

    progress: float = 0.0
    skips_parameters: bool = False
    num_errors: int = 0

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

        These are the rows of the head `probed`. If `probed` is None, they are the encoder's
        features, in autocast's dtype.
        """
        h_ND = self.encode(x_NCHW)
        return h_ND if self.probed is None else self.apply_heads(h_ND)[self.probed]

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Returns each head's rows [N, width of the head], in float32 at least, autocast or not."""
        return self.apply_heads(self.encode(x_NCHW))

    def encode(self, x_NCHW: Tensor) -> Tensor:
        """Returns the encoder's features, [N, width]. Raises SpecError for another shape.

        These are the pooled features, or their embedding with `model.embedding_dim`.
        """
        h_ND: Tensor = self.encoder(x_NCHW)
        what = f"encoder {self.encoder.spec.name!r}: the features"
        way_out = "return a row of self.width features per image from forward"
        check_shape(what, h_ND, (len(x_NCHW), self.encoder.width), way_out)
        return h_ND

    def apply_heads(self, h_ND: Tensor) -> dict[str, Tensor]:
        """Returns each head's rows from the encoder's features [N, width]."""
        # In bfloat16 unit rows would have length 1 only up to 1e-2.
        with torch.autocast(h_ND.device.type, enabled=False):
            h_ND = h_ND if h_ND.dtype == torch.float64 else h_ND.float()
            return {name: head(h_ND) for name, head in zip(self.names, self.heads, strict=True)}


class ProjectionHead(nn.Sequential):
    """Projection head, [N, width] to unit rows [N, dim]: Linear-ReLU-Linear, normalised.

    Khosla et al. 2020, arXiv:2004.11362, sec. 3.1. A row shorter than SHORTEST keeps its direction
    and is shorter than 1. Its gradient is finite.
    """

    def __init__(self, width: int, *, dim: int, hidden: int | None = None) -> None:
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
        built = ENCODERS[encoder.name](encoder)
        if spec.embedding_dim is not None:
            built.add_embedding(spec.embedding_dim)
        network = make(built)
    guard_convolutions(network)
    return network


class GuardedConv2d(nn.Conv2d):
    """Conv2d guarded against two faults on a CPU (torch 2.15, oneDNN 3.13).

    Where a stride is longer than the input's side (3 by 3 with stride 2 on a map of 1 pixel, as at
    the end of a ResNet of 16 px images), the weights' gradient in bfloat16 contains unwritten
    memory, with or without AVX512_BF16. In float32 it is right.

    On a CPU with AVX2 and without AVX512 the weights' gradient of a 1 by 1 convolution with a
    stride and fewer than 8 input channels writes outside of its memory: the process hangs or
    aborts.

    Affected inputs have another computation. Its output has autocast's dtype.
    """

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C', H', W']."""
        if input.device.type != "cpu":
            return super().forward(input)
        rows, columns = self.stride
        # Strided, 1 by 1, of few channels and without padding.
        is_narrow = self.in_channels < LANES and self.kernel_size == (1, 1)
        if is_narrow and self.padding == (0, 0) and max(self.stride) > 1:
            kept = input[..., ::rows, ::columns]
            return F.conv2d(kept, self.weight, self.bias, groups=self.groups)
        is_affected = any(s < t for s, t in zip(input.shape[-2:], self.stride, strict=True))
        is_half = torch.is_autocast_enabled("cpu") and input.dtype != torch.float64
        if not (is_affected and is_half):
            return super().forward(input)
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float()).to(torch.get_autocast_dtype("cpu"))


def guard_convolutions(module: nn.Module) -> None:
    """Makes the Conv2d modules below the module GuardedConv2d. Their subclasses stay."""
    for child in module.modules():
        if type(child) is nn.Conv2d:
            # Not a new module: hooks and other references to this module stay valid.
            child.__class__ = GuardedConv2d


def make_global(network: nn.Module) -> None:
    """Makes a network's batch norms take their training moments over all ranks.

    Replaces BatchNorm1d of rows and BatchNorm2d below the network: on CUDA by torch's
    SyncBatchNorm, on a CPU by GlobalBatchNorm. Parameters, buffers and their names stay, so
    checkpoints fit both kinds.
    """
    if any(tensor.is_cuda for tensor in chain(network.parameters(), network.buffers())):
        nn.SyncBatchNorm.convert_sync_batchnorm(network)
        return
    for child in network.modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            # Not a new module: parameters, buffers and settings stay as they are.
            child.__class__ = GlobalBatchNorm


class GlobalBatchNorm(_BatchNorm):
    """Batch norm with training moments over the items of all ranks, with gradients.

    Ranks may hold different numbers of items, but not 0. Gradients are of the sum of the ranks'
    losses. On a single rank, and in eval mode, it is torch's batch norm.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Returns the normalised input, in its dtype.

        In training it is a collective call: every rank must make it, in the same order.
        """
        if not self.training or not dist.is_initialized() or dist.get_world_size() == 1:
            return super().forward(input)
        x = input.to(torch.promote_types(input.dtype, torch.float32))
        count, mean_C, var_C = _moments_over_ranks(x)
        if self.track_running_stats:
            assert self.momentum is not None
            self.get_buffer("num_batches_tracked").add_(1)
            unbiased_C = var_C * count / (count - 1)
            for name, now_C in (("running_mean", mean_C), ("running_var", unbiased_C)):
                running_C = self.get_buffer(name)
                running_C.lerp_(now_C.detach().to(running_C.dtype), self.momentum)
        by_channel = (1, -1) + (1,) * (x.ndim - 2)
        inverse_C = (var_C + self.eps).rsqrt().to(x.dtype)
        # Subtracted first: products with a large mean would cancel in float32.
        y = (x - mean_C.to(x.dtype).view(by_channel)) * inverse_C.view(by_channel)
        if self.affine:
            y = torch.addcmul(self.bias.view(by_channel), y, self.weight.view(by_channel))
        return y.to(input.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accepts rows and images. torch's modules accept only rows or only images."""


def _moments_over_ranks(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns count, mean and biased variance per channel in float64, with a single all-reduce."""
    axes = [axis for axis in range(x.ndim) if axis != 1]
    var_C, mean_C = (each.double() for each in torch.var_mean(x, axes, correction=0))
    # Raw sums of squares would cancel in float32. Sums of local moments in float64 do not.
    count = mean_C.new_full((1,), x.numel() // x.shape[1])
    local = torch.cat([count, count * mean_C, count * (var_C + mean_C.square())])
    # The difference is 0. It has the gradient, which is also the sum of the ranks' gradients.
    total = _sum_over_ranks(local.detach()) + (local - local.detach())
    if total.requires_grad:
        total.register_hook(_sum_over_ranks)
    count, sum_C, square_C = total.split([1, len(mean_C), len(mean_C)])
    mean_C = sum_C / count
    return count.detach(), mean_C, (square_C / count - mean_C.square()).clamp(min=0)


def _sum_over_ranks(x: Tensor) -> Tensor:
    """Returns the sum over all ranks. Raises RuntimeError if it would need a gradient."""
    if x.requires_grad:
        raise RuntimeError("batch norm over several workers has no second derivative")
    total = x.clone()
    dist.all_reduce(total)
    return total
