"""Augmentations of a batch of views, each row with its own strength, equal to torchvision's.

R rows, H and W of a view, P = H * W its pixels, three channels. Amounts are computed on the CPU.
Operations work in place, because on a CPU passes through memory take most of their time. They also
get only the rows to be changed, selected by `jitter_` and `apply_`. `view_kernel` does the same in
a single kernel on a GPU with Triton, except for the blur.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.batch import send_together

GRAY = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NO_JITTER = (1.0, 1.0, 1.0, 0.0)  # factors and shift without an effect on an image


class Turns(NamedTuple):
    """Row order for `jitter_`, and the number of rows with the hue as k-th operation or later."""

    order_R: Tensor
    num_from_turn: list[int]


def jitter_turns(order_R4: Tensor, factor_R4: Tensor) -> Turns:
    """Sorts rows by the turn of their hue, the fourth turn first, rows without jitter last."""
    turn_R = (order_R4.numpy() == HUE).argmax(axis=1)
    key_R = np.where((factor_R4.numpy() == np.array(NO_JITTER, np.float32)).all(axis=1), -1, turn_R)
    num_from_turn = [int((key_R >= turn).sum()) for turn in range(4)]
    return Turns(torch.from_numpy((-key_R).argsort(kind="stable")), num_from_turn)


def jitter_(x_RCHW: Tensor, amount_3R4: Tensor, shift_R: Tensor, turns: Turns) -> None:
    """Applies brightness, contrast, saturation and hue, in each row's order, in place.

    The amounts come from `blend_amounts` and `hue_shifts`. The rows must be in the order of
    `turns`. All rows shift their hue at the same time. Rows with the hue as k-th operation blend
    k - 1 times before it and 4 - k times after it. In the order of `turns` the rows of each blend
    are contiguous, so no row is gathered or copied.
    """
    x_RCP = x_RCHW.flatten(2)
    num_jittered, *ends = turns.num_from_turn

    def blend(start: int, stop: int, turn: int) -> None:
        _blend_(x_RCP[start:stop], *amount_3R4[:, start:stop, turn, None].unbind(0))

    # Before the hue: blend k is for rows with a hue later than k.
    for turn, stop in enumerate(ends):
        blend(0, stop, turn)
    if len(shift_R) > 0:
        _shift_hue_(x_RCP[:num_jittered], shift_R)
    # After the hue: blend k is for rows with a hue earlier than k.
    for turn, start in enumerate(ends, start=1):
        blend(start, num_jittered, turn)


def blend_amounts(order_R4: Tensor, factor_R4: Tensor) -> Tensor:
    """Returns each turn's weights of the image, its gray image and its mean gray, [3, R, 4]."""
    keep_R4 = factor_R4.gather(1, order_R4)
    rest_R4 = 1 - keep_R4
    gray_R4, mean_R4 = rest_R4 * (order_R4 == SATURATION), rest_R4 * (order_R4 == CONTRAST)
    return torch.stack([keep_R4, gray_R4, mean_R4])


def blends_of_all(order_R4: Tensor, factor_R4: Tensor) -> Tensor:
    """Returns `blend_amounts` of the turns 0 to 2 if before the hue, 1 to 3 if after it, [3, R, 6].

    All other amounts are 1, 0 and 0, which change nothing.
    """
    amount_3R4 = blend_amounts(order_R4, factor_R4)
    turn_4 = torch.arange(4)
    hue_R1 = (order_R4 == HUE).int().argmax(dim=1, keepdim=True)
    amount_3R6 = torch.cat([amount_3R4[:, :, :3], amount_3R4[:, :, 1:]], dim=2)
    is_drawn_R6 = torch.cat([turn_4[:3] < hue_R1, turn_4[1:] > hue_R1], dim=1)
    return torch.where(is_drawn_R6, amount_3R6, torch.tensor([1.0, 0.0, 0.0])[:, None, None])


def hue_shifts(factor_R4: Tensor, turns: Turns) -> Tensor:
    """Returns the shifts of all jittered rows in the order of `turns`, none if all are 0."""
    shift_R = factor_R4[: turns.num_from_turn[0], HUE]
    return shift_R if shift_R.any() else shift_R[:0]


def _blend_(x_RCP: Tensor, keep_R1: Tensor, to_gray_R1: Tensor, to_mean_R1: Tensor) -> None:
    """Computes f * x + (1 - f) * y clamped to [0, 1], in place.

    y is black for brightness, the mean gray for contrast and the gray image for saturation. A joint
    expression covers all three, so rows with different operations are blended together.
    """
    gray_RP = _gray(x_RCP)
    mean_R1 = gray_RP.mean(dim=1, keepdim=True)
    # Not addcmul: torch's loop is three times as slow if two operands have a single number per row.
    gray_RP.mul_(to_gray_R1).add_(to_mean_R1 * mean_R1)
    torch.addcmul(gray_RP[:, None], x_RCP, keep_R1[:, None], out=x_RCP).clamp_(0, 1)


def apply_(x_RC: Tensor, amount_R: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Replaces the rows with a nonzero amount by operation(rows, their amounts).

    The amounts are on the CPU, where the selection of rows needs no device synchronisation.
    """
    index_K = amount_R.nonzero().flatten()
    if len(index_K) > 0:
        index_K, amount_K = send_together([index_K, amount_R[index_K]], x_RC.device)
        x_RC.index_copy_(0, index_K, operation(x_RC.index_select(0, index_K), amount_K))


def _gray(x_RC: Tensor) -> Tensor:
    """Returns the luma, without the dimension of channels."""
    red, green, blue = x_RC[:, 0], x_RC[:, 1], x_RC[:, 2]
    gray_R: Tensor = red * GRAY[0]
    return gray_R.add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])


def grayscale(x_RC: Tensor, _: Tensor) -> Tensor:
    """Returns the luma in every channel, in the shape of x."""
    return _gray(x_RC)[:, None].expand_as(x_RC)


def _shift_hue_(x_RCP: Tensor, shift_R: Tensor) -> None:
    """Shifts the hue by a fraction of the circle, in place.

    HSV without branches: x is converted to hue, chroma and its brightest and darkest channel, and
    each channel is computed back from these.
    """
    red, green, blue = x_RCP[:, 0], x_RCP[:, 1], x_RCP[:, 2]
    top = torch.maximum(red.maximum(green), blue)
    bottom = torch.minimum(red.minimum(green), blue)
    # 0 where the channel is the brightest, else 1. `lerp` by 0 or 1 selects like `where`, in a
    # fraction of its time on a CPU.
    below_red, below_green = (top != red).to(top.dtype), (top != green).to(top.dtype)
    chroma = top - bottom
    # The hue in sectors of a sixth, relative to the brightest channel: red at 0, green 2, blue 4.
    in_green, in_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sector = (green - blue).lerp_(in_green.lerp_(in_blue, below_green), below_red)
    # Plus a whole turn, because `frac` of a negative number would be negative.
    hue = torch.addcdiv(shift_R[:, None] + 1, sector, chroma.clamp(min=1e-12), value=1 / 6)
    hue.frac_().mul_(6)
    # Over the circle each channel is a trapezoid between `bottom` and `top`: with the distance
    # d = |hue - middle| clamped to [1, 2], red is bottom + (d - 1) * chroma, and green and blue are
    # top - (d - 1) * chroma. The 1 is moved into the base, which saves a pass.
    top.add_(chroma)
    bottom.sub_(chroma)
    parts = ((bottom, 3, 1), (top, 2, -1), (top, 4, -1))
    trapezoid = sector  # its memory is free
    for channel, (base, middle, sign) in zip((red, green, blue), parts, strict=True):
        torch.sub(hue, middle, out=trapezoid).abs_().clamp_(1, 2)
        torch.addcmul(base, trapezoid, chroma, value=sign, out=channel)


def blur(x_RCHW: Tensor, sigma_R: Tensor) -> Tensor:
    """Returns rows after a Gaussian blur, reflecting at the border, sigmas in pixels.

    The kernel's length is odd, about a tenth of the side (Chen et al. 2020, arXiv:2002.05709,
    appendix A). A row's two passes are products with the same [S, S] matrix, which needs no
    convolution with a kernel per row.
    """
    size = x_RCHW.shape[2]
    reach = max(1, size // 20)
    offset_K = torch.arange(-reach, reach + 1, device=x_RCHW.device)
    kernel_RK = (-0.5 * (offset_K / sigma_R[:, None]).square()).softmax(dim=1)
    pixel_S1 = torch.arange(size, device=x_RCHW.device)[:, None]
    source_SK = (size - 1) - ((size - 1) - (pixel_S1 + offset_K).abs()).abs()
    matrix_RSS = x_RCHW.new_zeros(len(sigma_R), size, size)
    weight_RSK = kernel_RK[:, None].expand(-1, size, -1)
    matrix_RSS.scatter_add_(2, source_SK.expand_as(weight_RSK), weight_RSK)
    blurred_RPW = x_RCHW.flatten(1, 2) @ matrix_RSS.mT
    return matrix_RSS[:, None] @ blurred_RPW.view_as(x_RCHW)


def solarise(x_RCHW: Tensor, threshold_R: Tensor) -> Tensor:
    """Returns rows in which values from the row's threshold on are inverted to 1 - x.

    Grill et al. 2020, arXiv:2006.07733, appendix B.
    """
    return torch.where(x_RCHW < threshold_R[:, None, None, None], x_RCHW, 1 - x_RCHW)


def normalise_(x_RCHW: Tensor, moments_2C: Tensor, place_R: Tensor | None = None) -> Tensor:
    """Returns (x - mean) / std in channels_last. Overwrites x.

    With places, row i of the result is row place_R[i] of x.
    """
    mean, std = moments_2C.view(2, 1, 3, 1, 1)
    x_RCHW = x_RCHW.sub_(mean).div_(std)
    if place_R is None:
        return x_RCHW.contiguous(memory_format=torch.channels_last)
    # Selecting rows of this view transposes them, too.
    return x_RCHW.permute(0, 2, 3, 1).index_select(0, place_R).permute(0, 3, 1, 2)
