"""Batch norm over the items of all ranks, on any backend of torch.distributed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def make_global(module: nn.Module, group: dist.ProcessGroup | None = None) -> nn.Module:
    """The module with the training moments of its batch norms taken over all ranks of the group.

    Meant are BatchNorm1d of rows and BatchNorm2d; parameters, buffers and their names stay. Call
    it where the parameters already lie on the training device: on CUDA the layers are torch's
    SyncBatchNorm, which refuses other devices.
    """
    parameter = next(module.parameters(), None)
    if parameter is not None and parameter.is_cuda:
        synced: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(module, group)
        return synced
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


class _GlobalBatchNorm(_BatchNorm):
    """Batch norm whose training moments are those of all ranks' items, with gradients.

    Ranks may hold different numbers of items. The gradient is that of the sum of the ranks'
    losses. Alone, or in eval mode, it is torch's own.
    """

    group: dist.ProcessGroup | None = None

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, in its dtype; in training every rank must call it in the same order."""
        if not self.training or not _is_shared(self.group):
            return super().forward(input)
        x = input if input.dtype == torch.float64 else input.float()
        count, mean_C, var_C = _moments_over_ranks(x, self.group)
        if self.track_running_stats:
            self._update_running(count.detach(), mean_C.detach(), var_C.detach())
        scale_C = (var_C + self.eps).rsqrt()
        scale_C = scale_C * self.weight if self.affine else scale_C
        shift_C = -mean_C * scale_C
        shift_C = shift_C + self.bias if self.affine else shift_C
        by_channel = (1, -1) + (1,) * (x.ndim - 2)
        y = x * scale_C.to(x.dtype).view(by_channel) + shift_C.to(x.dtype).view(by_channel)
        return y.to(input.dtype)

    def _update_running(self, count: Tensor, mean_C: Tensor, var_C: Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        assert self.momentum is not None
        self.num_batches_tracked.add_(1)
        dtype = self.running_mean.dtype
        self.running_mean.lerp_(mean_C.to(dtype), self.momentum)
        self.running_var.lerp_((var_C * count / (count - 1)).to(dtype), self.momentum)


class GlobalBatchNorm1d(_GlobalBatchNorm, nn.BatchNorm1d):
    """For rows [N, C]."""


class GlobalBatchNorm2d(_GlobalBatchNorm, nn.BatchNorm2d):
    """For images [N, C, H, W]."""


_GLOBAL: dict[type[_BatchNorm], type[_GlobalBatchNorm]] = {
    nn.BatchNorm1d: GlobalBatchNorm1d,
    nn.BatchNorm2d: GlobalBatchNorm2d,
}


def _convert(norm: _BatchNorm, group: dist.ProcessGroup | None) -> _GlobalBatchNorm:
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
    var_C, mean_C = torch.var_mean(x, dim=(0, *range(2, x.ndim)), correction=0)
    var_C, mean_C = var_C.double(), mean_C.double()
    # Sums of squares would cancel in float32; from local moments, in float64, they do not.
    count = mean_C.new_tensor([x.numel() / x.shape[1]])
    packed = torch.cat([count, count * mean_C, count * (var_C + mean_C.square())])
    total: Tensor = _SumOverRanks.apply(packed, group)
    count, sum_C, square_C = total.split([1, len(mean_C), len(mean_C)])
    mean_C = sum_C / count
    return count, mean_C, (square_C / count - mean_C.square()).clamp(min=0)


class _SumOverRanks(torch.autograd.Function):
    """Sum over ranks; its gradient is the sum over ranks of the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].clone()
        dist.all_reduce(total, group=ctx.group)
        return total, None
