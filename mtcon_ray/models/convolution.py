"""A guard against wrong gradients of torch's bfloat16 convolutions on a CPU.

Where a stride is longer than the input's side (3 by 3 with stride 2 on a map of one pixel, as at
the end of a ResNet of 16 px images), the weights' gradient contains unwritten memory: torch 2.15,
oneDNN, with or without AVX512_BF16. In float32 it is right.
"""

import torch
from torch import Tensor, nn


class GuardedConv2d(nn.Conv2d):
    """Conv2d that computes the affected inputs in float32. Its output has autocast's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C', H', W']."""
        is_affected = any(s < t for s, t in zip(input.shape[-2:], self.stride, strict=True))
        is_half = torch.is_autocast_enabled("cpu") and input.dtype != torch.float64
        if not (is_affected and is_half and input.device.type == "cpu"):
            return super().forward(input)
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float()).to(torch.get_autocast_dtype("cpu"))


def guard_convolutions(module: nn.Module) -> None:
    """Makes the Conv2d modules below the module GuardedConv2d; their subclasses stay."""
    for child in module.modules():
        if type(child) is nn.Conv2d:
            # Not a new module: hooks and other references to this one stay valid.
            child.__class__ = GuardedConv2d
