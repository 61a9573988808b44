"""Convolutions of maps of a few pixels as matrix products, in bfloat16 on a CPU.

Where the output is at most 3 by 3, torch's own (2.15, oneDNN) take 1.3 to 5 times as long there for
a hundred views and more, and about as long for few (`python -m benchmarks convolutions`). Where a
kernel of 3 strides over a map of one pixel, they read the weights' gradient from memory that nobody
wrote. Everywhere else convolutions are left to torch.
"""

from itertools import groupby, product
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of the output; beyond it torch's own are as fast.
MOST_SIDE = 3
# The weights' gradient takes a product for each of a kernel's places.
MOST_PLACES = 49


def use_products(module: nn.Module) -> None:
    """Makes the convolutions below the module ProductConv2d; all else of them stays.

    Left as they are: convolutions in groups, dilated, padded with anything but zeros or with as
    many as the kernel is long, those with large kernels, and subclasses of Conv2d.
    """
    for child in module.modules():
        if type(child) is nn.Conv2d and _is_plain(child):
            # Not a new module: hooks and what else holds this one go on to hold.
            child.__class__ = ProductConv2d


class ProductConv2d(nn.Conv2d):
    """Conv2d, with the same values but for rounding."""

    def forward(self, input: Tensor) -> Tensor:
        """[N, C, H, W] to [N, C', H', W']."""
        if not _is_slow(input):
            return super().forward(input)
        assert not isinstance(self.padding, str)
        stride, padding = list(self.stride), list(self.padding)
        axes = _axes(input, self.weight, stride, padding)
        if not all(1 <= axis.num_outputs <= MOST_SIDE for axis in axes):
            return super().forward(input)
        bias = None if self.bias is None else self.bias.bfloat16()
        output: Tensor = _convolve(input.bfloat16(), self.weight.bfloat16(), bias, stride, padding)
        return output


class _Axis(NamedTuple):
    """Height or width: which outputs see which inputs through which places of the kernel."""

    size: int
    kernel: int
    stride: int
    padding: int

    @property
    def num_outputs(self) -> int:
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    def groups(self) -> list["_Group"]:
        """The outputs, those side by side that see inputs through the same places together."""
        starts = [i * self.stride - self.padding for i in range(self.num_outputs)]
        places = [(max(0, -start), min(self.kernel, self.size - start)) for start in starts]
        groups = []
        for (first, end), together in groupby(range(self.num_outputs), key=places.__getitem__):
            outputs = tuple(together)
            inputs = tuple(slice(starts[i] + first, starts[i] + end) for i in outputs)
            groups.append(_Group(slice(outputs[0], outputs[-1] + 1), slice(first, end), inputs))
        return groups

    def of_place(self, k: int) -> tuple[slice, slice]:
        """The outputs that see inputs, not padding, through a place, and these inputs."""
        first = max(0, -((k - self.padding) // self.stride))
        last = (self.size - 1 + self.padding - k) // self.stride
        end = max(first, min(self.num_outputs, last + 1))
        start, stop = (i * self.stride - self.padding + k for i in (first, end))
        return slice(first, end), slice(start, stop, self.stride)


def _axes(
    x_NCHW: Tensor, weight: Tensor, stride: list[int], padding: list[int]
) -> tuple[_Axis, _Axis]:
    sizes = zip(x_NCHW.shape[2:], weight.shape[2:], stride, padding, strict=True)
    height, width = (_Axis(*each) for each in sizes)
    return height, width


class _Group(NamedTuple):
    """Outputs side by side, the places of the kernel on the input, and what each sees there."""

    outputs: slice
    places: slice
    inputs: tuple[slice, ...]


# An operator of its own is one call for torch.compile too, which would take minutes over its parts.
@torch.library.custom_op("mtcon_ray::convolution_by_products", mutates_args=())
def _convolve(
    x_NCHW: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int]
) -> Tensor:
    """All of them bfloat16; a product for each group of pixels; no zero of the padding is in any.

    Of the pairs of a pixel and a place, which an output of 2 by 2 has 36 of under a kernel of 3,
    20 lie on the padding.
    """
    height, width = _axes(x_NCHW, weight, stride, padding)
    x_NHWC = x_NCHW.permute(0, 2, 3, 1)
    y_NHWO = x_NHWC.new_empty(len(x_NHWC), height.num_outputs, width.num_outputs, len(weight))
    for rows, columns in product(height.groups(), width.groups()):
        seen = [x_NHWC[:, ys, xs].flatten(1) for ys, xs in product(rows.inputs, columns.inputs)]
        y_NRO = F.linear(torch.stack(seen, dim=1), _places(weight, rows, columns), bias)
        y_NHWO[:, rows.outputs, columns.outputs] = y_NRO.unflatten(1, (len(rows.inputs), -1))
    return y_NHWO.permute(0, 3, 1, 2)


@torch.library.custom_op("mtcon_ray::convolution_by_products_input_gradient", mutates_args=())
def _input_gradient(
    g_NOHW: Tensor, x_NCHW: Tensor, weight: Tensor, stride: list[int], padding: list[int]
) -> Tensor:
    height, width = _axes(x_NCHW, weight, stride, padding)
    g_NHWO = g_NOHW.permute(0, 2, 3, 1)
    # In float32, in which what a pixel gets from several outputs is summed.
    sum_NHWC = torch.zeros_like(x_NCHW.permute(0, 2, 3, 1), dtype=torch.float32)
    for rows, columns in product(height.groups(), width.groups()):
        windows = list(product(rows.inputs, columns.inputs))
        # Of one matrix: a strided stack of them is multiplied one by one.
        g_MO = g_NHWO[:, rows.outputs, columns.outputs].flatten(0, 2)
        parts_NRP = (g_MO @ _places(weight, rows, columns)).unflatten(0, (-1, len(windows)))
        for (ys, xs), part_NP in zip(windows, parts_NRP.unbind(1), strict=True):
            sum_NHWC[:, ys, xs] += part_NP.view(sum_NHWC[:, ys, xs].shape)
    return sum_NHWC.permute(0, 3, 1, 2).bfloat16()


@torch.library.custom_op("mtcon_ray::convolution_by_products_weight_gradient", mutates_args=())
def _weight_gradient(
    g_NOHW: Tensor, x_NCHW: Tensor, weight: Tensor, stride: list[int], padding: list[int]
) -> Tensor:
    height, width = _axes(x_NCHW, weight, stride, padding)
    g_NHWO, x_NHWC = g_NOHW.permute(0, 2, 3, 1), x_NCHW.permute(0, 2, 3, 1)
    shape = len(weight), height.kernel, width.kernel, x_NHWC.shape[3]
    gradient_OHWC = weight.new_empty(shape)
    for row, column in product(range(height.kernel), range(width.kernel)):
        (i, ys), (j, xs) = height.of_place(row), width.of_place(column)
        g_MO, x_MC = g_NHWO[:, i, j].flatten(0, 2), x_NHWC[:, ys, xs].flatten(0, 2)
        gradient_OHWC[:, row, column] = g_MO.t() @ x_MC
    return gradient_OHWC.permute(0, 3, 1, 2)


@_convolve.register_fake
def _(
    x_NCHW: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int], padding: list[int]
) -> Tensor:
    height, width = _axes(x_NCHW, weight, stride, padding)
    shape = len(x_NCHW), height.num_outputs, width.num_outputs, len(weight)
    return x_NCHW.new_empty(shape).permute(0, 3, 1, 2)


@_input_gradient.register_fake
def _(
    g_NOHW: Tensor, x_NCHW: Tensor, weight: Tensor, stride: list[int], padding: list[int]
) -> Tensor:
    return torch.empty_like(x_NCHW)


@_weight_gradient.register_fake
def _(
    g_NOHW: Tensor, x_NCHW: Tensor, weight: Tensor, stride: list[int], padding: list[int]
) -> Tensor:
    num_outputs, num_inputs, height, width = weight.shape
    return weight.new_empty(num_outputs, height, width, num_inputs).permute(0, 3, 1, 2)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x_NCHW, weight, _, ctx.stride, ctx.padding = inputs
    ctx.save_for_backward(x_NCHW, weight)


def _backward(ctx: Any, g_NOHW: Tensor) -> tuple[Tensor | None, ...]:
    x_NCHW, weight = ctx.saved_tensors
    rest = g_NOHW, x_NCHW, weight, ctx.stride, ctx.padding
    of_x = _input_gradient(*rest) if ctx.needs_input_grad[0] else None
    of_weight = _weight_gradient(*rest) if ctx.needs_input_grad[1] else None
    of_bias = g_NOHW.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
    return of_x, of_weight, of_bias, None, None


_convolve.register_autograd(_backward, setup_context=_save)


def _places(weight: Tensor, rows: _Group, columns: _Group) -> Tensor:
    """The weights of a group's places, [O, places * C]."""
    return weight.permute(0, 2, 3, 1)[:, rows.places, columns.places].flatten(1)


def _is_plain(conv: nn.Conv2d) -> bool:
    height, width = conv.kernel_size
    return (
        conv.groups == 1
        and conv.dilation == (1, 1)
        and conv.padding_mode == "zeros"
        and not isinstance(conv.padding, str)
        # So that each output sees an input.
        and all(pad < size for pad, size in zip(conv.padding, conv.kernel_size, strict=True))
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
