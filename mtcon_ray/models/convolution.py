"""Convolutions of maps of a few pixels as matrix products, in bfloat16 on a CPU.

There torch's own (2.15, oneDNN) take two to three times as long where the output is 2 by 2, and
where a kernel of 3 strides over a map of one pixel the weights' gradient is read from memory that
nobody wrote. Everywhere else they are left to torch.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of the output; beyond it torch's own are as fast.
MOST_SIDE = 2
# A product takes a slice for each of a kernel's places.
MOST_PLACES = 49


def use_products(module: nn.Module) -> None:
    """Makes the convolutions below the module ProductConv2d; all else of them stays.

    Left as they are: convolutions in groups, dilated, or padded with anything but a number of
    zeros, those with large kernels, and subclasses of Conv2d.
    """
    for child in module.modules():
        if type(child) is nn.Conv2d and _is_plain(child):
            # Not a new module: hooks and what else holds this one go on to hold.
            child.__class__ = ProductConv2d


class ProductConv2d(nn.Conv2d):
    """Conv2d, with the same values but for rounding."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C', H', W']."""
        if not _is_slow(input) or not all(1 <= side <= MOST_SIDE for side in self._sides(input)):
            return super().forward(input)
        return self._by_products(input)

    def _sides(self, x_NCHW: Tensor) -> tuple[int, int]:
        """Height and width of the output."""
        height, width = (
            (side + 2 * padding - kernel) // stride + 1
            for side, padding, kernel, stride in zip(
                x_NCHW.shape[2:], _padding(self), self.kernel_size, self.stride, strict=True
            )
        )
        return height, width

    def _by_products(self, x_NCHW: Tensor) -> Tensor:
        height, width = self._sides(x_NCHW)
        (top, left), (step_y, step_x) = _padding(self), self.stride
        # In float32, in which the gradients of a pixel's several places are then summed.
        x_NHWC = F.pad(x_NCHW.float().permute(0, 2, 3, 1), (0, 0, left, left, top, top))
        patches = [
            x_NHWC[:, y : y + step_y * height : step_y, x : x + step_x * width : step_x]
            for y in range(self.kernel_size[0])
            for x in range(self.kernel_size[1])
        ]
        patches_NHWP = torch.cat([patch.bfloat16() for patch in patches], dim=3)
        weight_CP = self.weight.permute(0, 2, 3, 1).flatten(1)
        return F.linear(patches_NHWP, weight_CP, self.bias).permute(0, 3, 1, 2)


def _is_plain(conv: nn.Conv2d) -> bool:
    height, width = conv.kernel_size
    return (
        conv.groups == 1
        and conv.dilation == (1, 1)
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
        and height * width <= MOST_PLACES
    )


def _is_slow(x: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and x.ndim == 4
        and x.dtype != torch.float64  # which autocast leaves alone
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def _padding(conv: nn.Conv2d) -> tuple[int, int]:
    """Rows and columns of zeros on each side."""
    assert not isinstance(conv.padding, str)
    rows, columns = conv.padding
    return rows, columns
