"""What is done to a batch of views, each row with its own strength, as torchvision does it.

R rows, H and W of a view, P = H * W its pixels, three channels. Amounts lie on the CPU, so that
choosing rows never waits for the device.

The jitter is `fusible`. A compiler refuses an `out` that is a part of a tensor, and writes each sum
to memory that is made in place; elsewhere both save time. So some lines stand in a form for each.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.transfer import send
from mtcon_ray.fusing import fusible

GRAY = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NO_JITTER = (1.0, 1.0, 1.0, 0.0)  # factors and shift that leave an image as it is


class Turns(NamedTuple):
    """Rows in the order in which `jitter_` takes them, and how many have the hue as their k-th."""

    order_R: Tensor
    num_by_turn: tuple[int, int, int, int]


def jitter_turns(order_R4: Tensor, factor_R4: Tensor) -> Turns:
    """Rows whose hue comes last are the first, those without any jitter the last."""
    turn_R = (order_R4.numpy() == HUE).argmax(axis=1)
    key_R = np.where((factor_R4.numpy() == np.array(NO_JITTER, np.float32)).all(axis=1), -1, turn_R)
    _, first, second, third, fourth = np.bincount(key_R + 1, minlength=5).tolist()
    order_R = torch.from_numpy((-key_R).argsort(kind="stable"))
    return Turns(order_R, (first, second, third, fourth))


def jitter_(x_RCHW: Tensor, order_R4: Tensor, factor_R4: Tensor, turns: Turns) -> None:
    """Brightness, contrast, saturation and hue, in each row's order, in place.

    The rows are in the order of `turns`, and so neighbours who take a step together: up to three
    of the other operations before the hue, the hue, up to three afterwards.
    """
    x_RCP = x_RCHW.flatten(2)
    first, second, third, fourth = turns.num_by_turn
    num_jittered = sum(turns.num_by_turn)
    amount_3R4 = send(_blend_amounts(order_R4, factor_R4), x_RCP.device)

    def blend(start: int, stop: int, turn: int) -> None:
        if start < stop:
            _blend_(x_RCP[start:stop], *amount_3R4[:, start:stop, turn, None].unbind(0))

    for turn, stop in enumerate((fourth + third + second, fourth + third, fourth)):
        blend(0, stop, turn)
    shift_R = factor_R4[:num_jittered, HUE].contiguous()
    if shift_R.any():
        _shift_hue_(x_RCP[:num_jittered], send(shift_R, x_RCP.device))
    for turn, start in enumerate((num_jittered - first, fourth + third, fourth), start=1):
        blend(start, num_jittered, turn)


def _blend_amounts(order_R4: Tensor, factor_R4: Tensor) -> Tensor:
    """What each turn keeps of an image, and adds of its gray image and mean gray: [3, R, 4]."""
    keep_R4 = factor_R4.gather(1, order_R4)
    rest_R4 = 1 - keep_R4
    return torch.stack(
        [keep_R4, rest_R4 * (order_R4 == SATURATION), rest_R4 * (order_R4 == CONTRAST)]
    )


@partial(fusible, dynamic=True)
def _blend_(x_RCP: Tensor, keep_R1: Tensor, to_gray_R1: Tensor, to_mean_R1: Tensor) -> None:
    """f * x + (1 - f) * y clamped to [0, 1], y being black, the mean gray or the gray image.

    One expression serves every row, whichever operation is its turn.
    """
    gray_RP = _gray(x_RCP)
    mean_R1 = gray_RP.mean(dim=1, keepdim=True)
    if torch.compiler.is_compiling():
        other_R1P = torch.addcmul(to_mean_R1 * mean_R1, gray_RP, to_gray_R1)[:, None]
        x_RCP.copy_(torch.addcmul(other_R1P, x_RCP, keep_R1[:, None]).clamp(0, 1))
        return
    # Not addcmul, which takes thrice as long where two of three are one number a row.
    gray_RP.mul_(to_gray_R1).add_(to_mean_R1 * mean_R1)
    torch.addcmul(gray_RP[:, None], x_RCP, keep_R1[:, None], out=x_RCP).clamp_(0, 1)


def apply_(x_RC: Tensor, amount_R: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Replaces the rows with an amount other than 0 by operation(rows, their amounts)."""
    index_K = amount_R.nonzero().flatten()
    if len(index_K) > 0:
        amount_K = send(amount_R[index_K], x_RC.device)
        index_K = send(index_K, x_RC.device)
        x_RC.index_copy_(0, index_K, operation(x_RC.index_select(0, index_K), amount_K))


def _gray(x_RC: Tensor) -> Tensor:
    """Luma, without the dimension of channels."""
    red, green, blue = x_RC[:, 0], x_RC[:, 1], x_RC[:, 2]
    if torch.compiler.is_compiling():
        return torch.add(torch.add(red * GRAY[0], green, alpha=GRAY[1]), blue, alpha=GRAY[2])
    gray_R: Tensor = red * GRAY[0]
    return gray_R.add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])


def grayscale(x_RC: Tensor, _: Tensor) -> Tensor:
    """Luma in every channel."""
    return _gray(x_RC)[:, None].expand_as(x_RC)


@partial(fusible, dynamic=True)
def _shift_hue_(x_RCP: Tensor, shift_R: Tensor) -> None:
    """Hue shifted by a share of the circle, through HSV."""
    # Not `unbind`: written to, its parts would be of one size for a compiler.
    red, green, blue = x_RCP[:, 0], x_RCP[:, 1], x_RCP[:, 2]
    top = torch.maximum(red.maximum(green), blue)
    bottom = torch.minimum(red.minimum(green), blue)
    # 0 where a channel is on top, else 1; lerp chooses by it, in a fraction of where's time.
    below_red, below_green = top.new_empty(top.shape), top.new_empty(top.shape)
    torch.ne(top, red, out=below_red)
    torch.ne(top, green, out=below_green)
    chroma = top - bottom
    in_green, in_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sector = (green - blue).lerp_(in_green.lerp_(in_blue, below_green), below_red)
    # A whole turn more, so that none is negative; then the circle is six sectors long.
    hue = torch.addcdiv(shift_R[:, None] + 1, sector, chroma.clamp(min=1e-12), value=1 / 6)
    hue.frac_().mul_(6)
    # A channel lies above the bottom or below the top by a trapezoid over the circle, 1 to 2.
    top.add_(chroma)
    bottom.sub_(chroma)
    parts = ((bottom, 3, 1), (top, 2, -1), (top, 4, -1))
    if torch.compiler.is_compiling():
        red_green_blue = [
            torch.addcmul(base, (hue - middle).abs().clamp(1, 2), chroma, value=sign)
            for base, middle, sign in parts
        ]
        x_RCP.copy_(torch.stack(red_green_blue, dim=1))
        return
    trapezoid = sector  # no more needed
    for channel, (base, middle, sign) in zip((red, green, blue), parts, strict=True):
        torch.sub(hue, middle, out=trapezoid).abs_().clamp_(1, 2)
        torch.addcmul(base, trapezoid, chroma, value=sign, out=channel)


def blur(x_RCHW: Tensor, sigma_R: Tensor) -> Tensor:
    """Gaussian blur, reflecting at the border; the kernel is odd, about a tenth of the side."""
    size = x_RCHW.shape[2]
    reach = max(1, size // 20)
    offset_K = torch.arange(-reach, reach + 1, device=x_RCHW.device)
    kernel_RK = (-0.5 * (offset_K / sigma_R[:, None]).square()).softmax(dim=1)
    pixel_S1 = torch.arange(size, device=x_RCHW.device)[:, None]
    source_SK = (size - 1) - ((size - 1) - (pixel_S1 + offset_K).abs()).abs()
    matrix_RSS = x_RCHW.new_zeros(len(sigma_R), size, size)
    matrix_RSS.scatter_add_(
        2, source_SK.expand(len(sigma_R), -1, -1), kernel_RK[:, None].expand(-1, size, -1)
    )
    blurred_RPW = x_RCHW.flatten(1, 2) @ matrix_RSS.mT
    return matrix_RSS[:, None] @ blurred_RPW.view_as(x_RCHW)


def normalise_(
    x_RCHW: Tensor, mean_C: Sequence[float], std_C: Sequence[float], order_R: Tensor | None = None
) -> Tensor:
    """Views in channels_last, less the mean and over the deviation; x is spoilt.

    With an order, row order_R[i] of the result is the i-th of x.
    """
    moments = torch.tensor([mean_C, std_C], dtype=x_RCHW.dtype)
    mean, std = send(moments, x_RCHW.device).view(2, 1, 3, 1, 1)
    x_RCHW = x_RCHW.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)
    if order_R is None:
        return x_RCHW
    place_R = send(order_R.argsort(), x_RCHW.device)
    return x_RCHW.permute(0, 2, 3, 1).index_select(0, place_R).permute(0, 3, 1, 2)
