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
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

_TINY = torch.finfo(torch.float32).tiny


def make_global(module: nn.Module) -> nn.Module:
    """Returns the module with its batch norms' training moments taken over all ranks.

    Replaces BatchNorm1d of rows and BatchNorm2d: on CUDA by torch's SyncBatchNorm, on a CPU by
    GlobalBatchNorm. Parameters, buffers and their names stay, so checkpoints fit both kinds.
    """
    if any(tensor.is_cuda for tensor in chain(module.parameters(), module.buffers())):
        on_cuda: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module)
        return on_cuda
    for child in module.modules():
        if type(child) in (nn.BatchNorm1d, nn.BatchNorm2d):
            # Not a new module: parameters, buffers and settings stay as they are.
            child.__class__ = GlobalBatchNorm
    return module


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
        count, mean_C, var_C = _moments_over_ranks(input.detach())
        if self.track_running_stats:
            assert self.momentum is not None
            self.get_buffer("num_batches_tracked").add_(1)
            unbiased_C = var_C * count / (count - 1)
            for name, now_C in (("running_mean", mean_C), ("running_var", unbiased_C)):
                running_C = self.get_buffer(name)
                running_C.lerp_(now_C.to(running_C.dtype), self.momentum)
        output: Tensor = _Normalised.apply(
            input, self.weight, self.bias, count, mean_C, var_C, self.eps
        )
        return output

    def _check_input_dim(self, input: Tensor) -> None:
        """Accepts rows and images. torch's modules accept only rows or only images."""


def _moments_over_ranks(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns count, mean and biased variance per channel in float64, with a single all-reduce."""
    # torch's fused kernel computes both moments together. Its normalised output is discarded.
    # It is given running moments (unused_C) because without them it returns the moments of
    # bfloat16 input in bfloat16. eps keeps 1 / deviation finite where the deviation is 0.
    unused_C = x.new_zeros(x.shape[1], dtype=torch.promote_types(x.dtype, torch.float32))
    _, mean_C, inverse_C = torch.native_batch_norm(
        x, None, None, unused_C, unused_C.clone(), training=True, momentum=0.0, eps=_TINY
    )
    mean_C, var_C = mean_C.double(), inverse_C.double().pow(-2)
    # Raw sums of squares would cancel in float32. Sums of local moments in float64 do not.
    count = mean_C.new_full((1,), x.numel() // x.shape[1])
    total = torch.cat([count, count * mean_C, count * (var_C + mean_C.square())])
    dist.all_reduce(total)
    count, sum_C, square_C = total.split([1, len(mean_C), len(mean_C)])
    mean_C = sum_C / count
    return count, mean_C, (square_C / count - mean_C.square()).clamp(min=0)


class _Normalised(torch.autograd.Function):
    """Normalisation by moments, with gradients through the moments to all ranks' inputs.

    With n items of all ranks, normalised input h and gradient g of the output, the gradient of the
    input is weight / deviation * (g - sum(g) / n - h * sum(g * h) / n), where the sums run over the
    items of all ranks. Only the input is saved for the backward, not h.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight_C: Tensor | None,
        bias_C: Tensor | None,
        count: Tensor,
        mean_C: Tensor,
        var_C: Tensor,
        eps: float,
    ) -> Tensor:
        dtype = torch.promote_types(x.dtype, torch.float32)
        inverse_C = (var_C + eps).rsqrt().to(dtype)
        ctx.save_for_backward(x, weight_C, count.to(dtype), mean_C.to(dtype), inverse_C)
        return F.batch_norm(x, mean_C.to(dtype), var_C.to(dtype), weight_C, bias_C, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weight_C, count, mean_C, inverse_C = ctx.saved_tensors
        # Only the sums over this rank's items are used. They do not depend on the weight argument,
        # for which inverse_C is a placeholder of the right shape.
        _, sum_gh_C, sum_g_C = torch.ops.aten.native_batch_norm_backward(
            g, x, inverse_C, None, None, mean_C, inverse_C, True, 0.0, [False, True, True]
        )
        grad_x = None
        if ctx.needs_input_grad[0]:
            # grad_x = g * scale + x * by_x + rest: the formula above, expanded in x, in two passes.
            sums = torch.cat([sum_gh_C, sum_g_C])
            dist.all_reduce(sums)
            all_gh_C, all_g_C = (sums / count).chunk(2)
            scale_C = inverse_C if weight_C is None else inverse_C * weight_C
            by_x_C = -scale_C * inverse_C * all_gh_C
            rest_C = -scale_C * all_g_C - by_x_C * mean_C
            by_channel = (1, -1) + (1,) * (x.ndim - 2)
            scale, by_x, rest = (each.view(by_channel) for each in (scale_C, by_x_C, rest_C))
            grad_x = torch.addcmul(rest, x, by_x).addcmul_(g, scale).to(x.dtype)
        grad_weight = sum_gh_C if ctx.needs_input_grad[1] else None
        grad_bias = sum_g_C if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias, None, None, None, None
