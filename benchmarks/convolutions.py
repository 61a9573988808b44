"""Small convolutions in bfloat16 on the CPU: as products, and as torch has them.

Single ones as they stand at the end of ResNets of small images, and a ResNet-18 as a whole, forward
and backward. That ours are no further from float32 than torch's is checked before they are timed.
"""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from benchmarks.training import MUCH_MORE
from mtcon_ray.models.convolution import use_products
from mtcon_ray.training.device import keep_freed_memory, pick_autocast

HEADER = ("forward and backward, bfloat16", "views", "torch, ms", "ours, ms", "ours is faster by")


class Shape(NamedTuple):
    """A square convolution, padded by 1 where its kernel is 3, and the side of its input."""

    channels: tuple[int, int]
    kernel: int
    stride: int
    side: int

    def __str__(self) -> str:
        return (
            f"{self.channels[0]} to {self.channels[1]} channels, {self.kernel} by {self.kernel}, "
            f"stride {self.stride}, of {self.side} by {self.side}"
        )


SHAPES = (
    Shape((512, 512), 3, 1, 1),
    Shape((512, 512), 3, 1, 2),
    Shape((512, 512), 3, 1, 3),
    Shape((256, 512), 3, 2, 2),
    Shape((256, 512), 3, 2, 4),
    Shape((128, 256), 3, 2, 4),
    Shape((256, 512), 1, 2, 4),
    Shape((2048, 512), 1, 1, 2),
)


def measure(
    num_views: tuple[int, ...] = (32, 128, 512),
    rounds: int = 9,
    shapes: tuple[Shape, ...] = SHAPES,
    sides: tuple[int, ...] = (32, 64, 96),
    num_views_of_whole: int = 128,
) -> str:
    """The table; the last rows are the ResNet-18's."""
    if pick_autocast("auto", torch.device("cpu")) is None:
        return "This processor does not compute in bfloat16 fast: not run."
    keep_freed_memory()  # as a training does
    torch.manual_seed(0)
    rows = []
    for shape in shapes:
        conv = nn.Conv2d(*shape.channels, shape.kernel, shape.stride, shape.kernel // 2, bias=False)
        for n in num_views:
            x_NCHW = torch.randn(n, shape.channels[0], shape.side, shape.side, requires_grad=True)
            rows.append((str(shape), f"{n}", *compared(nn.Sequential(conv), x_NCHW, rounds)))
    for side in sides:
        x_NCHW = torch.randn(num_views_of_whole, 3, side, side)
        cells = compared(resnet18(num_classes=32), x_NCHW, rounds)
        rows.append((f"ResNet-18 at {side} px", f"{num_views_of_whole}", *cells))
    return markdown(HEADER, rows)


def compared(network: nn.Module, x_NCHW: Tensor, rounds: int) -> tuple[str, str, str]:
    """Milliseconds of torch's and of ours, and by how much ours is faster."""
    theirs = network.to(memory_format=torch.channels_last)
    ours = deepcopy(theirs)
    use_products(ours)
    x_NCHW = _in_channels_last(x_NCHW)
    weights = torch.randn_like(theirs(x_NCHW))
    exact = gradients(theirs, x_NCHW, weights, half=False)
    error, usual = (
        ((gradients(each, x_NCHW, weights) - exact).norm() / exact.norm()).item()
        for each in (ours, theirs)
    )
    assert error < MUCH_MORE * usual, f"gradients differ by {error:.1e}, torch's by {usual:.1e}"
    ways: dict[str, Callable[[], object]] = {
        "torch": partial(step, theirs, x_NCHW, weights),
        "ours": partial(step, ours, x_NCHW, weights),
    }
    times = interleaved(ways, rounds)
    torchs, own = (f"{1000 * times[name].median:.2f}" for name in ways)
    return torchs, own, str(ratio(times["torch"], times["ours"]))


def _in_channels_last(x_NCHW: Tensor) -> Tensor:
    layout = torch.channels_last
    return x_NCHW.detach().contiguous(memory_format=layout).requires_grad_(x_NCHW.requires_grad)


def step(network: nn.Module, x_NCHW: Tensor, weights: Tensor, half: bool = True) -> None:
    """Gradients of the weighted sum of all outputs; the input has one where it asks for it."""
    network.zero_grad()
    x_NCHW.grad = None
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        y = network(x_NCHW)
    y.backward(weights.to(y.dtype))


def gradients(network: nn.Module, x_NCHW: Tensor, weights: Tensor, half: bool = True) -> Tensor:
    """All of a step in one row."""
    step(network, x_NCHW, weights, half)
    found = [x_NCHW.grad, *(p.grad for p in network.parameters())]
    return torch.cat([each.flatten() for each in found if each is not None])
