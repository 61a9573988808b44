"""Batch norm over the items of all ranks, on any backend of torch.distributed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

_TINY = torch.finfo(torch.float32).tiny


def make_global(module: nn.Module, group: dist.ProcessGroup | None = None) -> nn.Module:
    """The module with the training moments of its batch norms taken over all ranks of the group.

    Meant are BatchNorm1d of rows and BatchNorm2d; parameters, buffers and their names stay.
    Torch's own SyncBatchNorm is for GPUs alone, and in each layer the host waits for the GPU to
    see whether a rank has no items.
    """
    if isinstance(module, _BatchNorm) and type(module) in _GLOBAL:
        return _convert(module, group)
    for name, child in module.named_children():
        module.add_module(name, make_global(child, group))
    return module


@contextmanager
def running_moments_kept(module: nn.Module) -> Iterator[None]:
    """Training forwards as ever, but no batch norm's running moments move."""
    norms = [m for m in module.modules() if isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


class GlobalBatchNorm(_BatchNorm):
    """Batch norm whose training moments are those of all ranks' items, with gradients.

    Ranks may hold different numbers of items, none of them 0. The gradient is that of the sum of
    the ranks' losses. Alone, or in eval mode, it is torch's own. Nothing waits for a GPU.
    """

    group: dist.ProcessGroup | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, in its dtype; in training every rank must call it in the same order."""
        if not self.training or not _is_shared(self.group):
            return super().forward(input)
        count, mean_C, var_C = _moments_over_ranks(input.detach(), self.group)
        if self.track_running_stats:
            self._update_running(count, mean_C, var_C)
        output: Tensor = _Normalised.apply(
            input, self.weight, self.bias, count, mean_C, var_C, self.eps, self.group
        )
        return output

    def _update_running(self, count: Tensor, mean_C: Tensor, var_C: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        dtype = self.running_mean.dtype
        self.running_mean.lerp_(mean_C.to(dtype), self.momentum)
        self.running_var.lerp_((var_C * count / (count - 1)).to(dtype), self.momentum)


class GlobalBatchNorm1d(GlobalBatchNorm, nn.BatchNorm1d):
    """For rows [N, C]."""


class GlobalBatchNorm2d(GlobalBatchNorm, nn.BatchNorm2d):
    """For images [N, C, H, W]."""


_GLOBAL: dict[type[_BatchNorm], type[GlobalBatchNorm]] = {
    nn.BatchNorm1d: GlobalBatchNorm1d,
    nn.BatchNorm2d: GlobalBatchNorm2d,
}


def _convert(norm: _BatchNorm, group: dist.ProcessGroup | None) -> GlobalBatchNorm:
    new = _GLOBAL[type(norm)](norm.num_features, norm.eps, norm.momentum, norm.affine)
    new.weight, new.bias = norm.weight, norm.bias
    new.running_mean, new.running_var = norm.running_mean, norm.running_var
    new.num_batches_tracked = norm.num_batches_tracked
    new.group = group
    return new.train(norm.training)


def _is_shared(group: dist.ProcessGroup | None) -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size(group) > 1


def _moments_over_ranks(
    x: Tensor, group: dist.ProcessGroup | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and biased variance per channel in float64, by one all-reduce."""
    # Of torch's one fused pass the moments alone are wanted. Without moments to move it would
    # return bfloat16's in bfloat16; with eps the deviation's inverse is finite where that is 0.
    unused_C = x.new_zeros(x.shape[1], dtype=_dtype_of_moments(x))
    _, mean_C, inverse_C = torch.native_batch_norm(
        x, None, None, unused_C, unused_C.clone(), training=True, momentum=0.0, eps=_TINY
    )
    mean_C, var_C = mean_C.double(), inverse_C.double().pow(-2)
    # Sums of squares would cancel in float32; from local moments, in float64, they do not.
    count = mean_C.new_full((1,), x.numel() // x.shape[1])
    total = torch.cat([count, count * mean_C, count * (var_C + mean_C.square())])
    dist.all_reduce(total, group=group)
    count, sum_C, square_C = total.split([1, len(mean_C), len(mean_C)])
    mean_C = sum_C / count
    return count, mean_C, (square_C / count - mean_C.square()).clamp(min=0)


def _dtype_of_moments(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


class _Normalised(torch.autograd.Function):
    """Normalises by moments that all ranks share, which depend on the input of each.

    With n items of all ranks, h the normalised input and g the gradient of the output, that of
    the input is weight / deviation * (g - sum(g) / n - h * sum(g * h) / n), with sums over the
    items of all ranks. Of the activations only the input is kept.
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
        group: dist.ProcessGroup | None,
    ) -> Tensor:
        dtype = _dtype_of_moments(x)
        inverse_C = (var_C + eps).rsqrt().to(dtype)
        ctx.group = group
        ctx.save_for_backward(x, weight_C, count.to(dtype), mean_C.to(dtype), inverse_C)
        return F.batch_norm(x, mean_C.to(dtype), var_C.to(dtype), weight_C, bias_C, eps=eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weight_C, count, mean_C, inverse_C = ctx.saved_tensors
        # Only the sums are taken from it, in which its weight, here any of that shape, has no part.
        _, sum_gh_C, sum_g_C = torch.ops.aten.native_batch_norm_backward(
            g, x, inverse_C, None, None, mean_C, inverse_C, True, 0.0, [False, True, True]
        )
        grad_x = None
        if ctx.needs_input_grad[0]:
            sums = torch.cat([sum_gh_C, sum_g_C])
            dist.all_reduce(sums, group=ctx.group)
            all_gh_C, all_g_C = (sums / count).chunk(2)
            scale_C = inverse_C if weight_C is None else inverse_C * weight_C
            by_x_C = -scale_C * inverse_C * all_gh_C
            rest_C = -scale_C * all_g_C - by_x_C * mean_C
            by_channel = (1, -1) + (1,) * (x.ndim - 2)
            scale, by_x, rest = (each.view(by_channel) for each in (scale_C, by_x_C, rest_C))
            grad_x = torch.addcmul(rest, x, by_x).addcmul_(g, scale).to(x.dtype)
        grad_weight = sum_gh_C if ctx.needs_input_grad[1] else None
        grad_bias = sum_g_C if ctx.needs_input_grad[2] else None
        return grad_x, grad_weight, grad_bias, None, None, None, None, None
