"""Batch norm over the items of all ranks: torch's SyncBatchNorm on CUDA, a module for gloo on CPUs.

SyncBatchNorm refuses CPU tensors. The module for CPUs gives the same values and gradients as a
single process on the joined batch.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


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


@contextmanager
def running_moments_kept(module: nn.Module) -> Iterator[None]:
    """Inside, forwards in training mode leave the running moments of batch norms unchanged."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


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
    total: Tensor = _SumOverRanks.apply(local)
    count, sum_C, square_C = total.split([1, len(mean_C), len(mean_C)])
    mean_C = sum_C / count
    return count.detach(), mean_C, (square_C / count - mean_C.square()).clamp(min=0)


class _SumOverRanks(torch.autograd.Function):
    """Sum over all ranks. The gradient is the sum of the ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone()
        dist.all_reduce(total)
        return total
