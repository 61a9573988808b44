"""Guards against two faults of torch's convolutions on a CPU (torch 2.15, oneDNN 3.13).

Where a stride is longer than the input's side (3 by 3 with stride 2 on a map of 1 pixel, as at
the end of a ResNet of 16 px images), the weights' gradient in bfloat16 contains unwritten memory,
with or without AVX512_BF16. In float32 it is right.

On a CPU with AVX2 and without AVX512 the weights' gradient of a 1 by 1 convolution with a stride
and fewer than 8 input channels writes outside of its memory: the process hangs or aborts.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

# Numbers in a register of AVX2.
LANES = 8


class GuardedConv2d(nn.Conv2d):
    """Conv2d with another computation for affected inputs. Its output has autocast's dtype."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C', H', W']."""
        if input.device.type != "cpu":
            return super().forward(input)
        rows, columns = self.stride
        # Strided, 1 by 1, of few channels and without padding.
        is_narrow = self.in_channels < LANES and self.kernel_size == (1, 1)
        if is_narrow and self.padding == (0, 0) and max(self.stride) > 1:
            kept = input[..., ::rows, ::columns]
            return functional.conv2d(kept, self.weight, self.bias, groups=self.groups)
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
