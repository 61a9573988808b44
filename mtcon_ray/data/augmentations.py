"""What is done to a batch of views, each row with its own strength, as torchvision does it.

R rows, S side of a stored image, H and W of a view, P = H * W its pixels, three channels. Amounts
lie on the CPU, so that choosing rows never waits for the device.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.data.transfer import send

GRAY = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
NO_JITTER = (1.0, 1.0, 1.0, 0.0)  # factors and shift that leave an image as it is


def crop(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int, order_R: Tensor) -> Tensor:
    """Crops resized with antialiasing, float32 [R, 3, size, size] in [0, 1]; R a multiple of B.

    images is uint8 [B, S, S, 3]; row order_R[i] is the i-th of the result. On a CPU in 8 bits, as
    Pillow does it: there torch's kernel for bytes is several times as fast as anything in
    floating point.
    """
    B, S = images.shape[:2]
    assert images.shape[1:] == (S, S, 3), images.shape
    assert len(box_R4) % B == 0, (box_R4.shape, B)
    if images.device.type == "cpu":
        return crop_in_bytes(images, box_R4, flip_R, size, order_R)
    x_RCHW = crop_by_products(images, box_R4, flip_R, size)
    return x_RCHW.index_select(0, send(order_R, images.device))


def crop_in_bytes(
    images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int, order_R: Tensor
) -> Tensor:
    """`crop`, row by row, each rounded to 8 bits."""
    B, S = images.shape[:2]
    R = len(box_R4)
    top_R, left_R, height_R, width_R = box_R4[order_R].unbind(1)
    flip_R = flip_R[order_R]
    # Cheaper than to mirror the crops: from the mirrored image, at the mirrored place.
    sources = torch.stack([images, images.flip(2)])
    left_R = torch.where(flip_R, S - left_R - width_R, left_R)
    image_R = flip_R * B + order_R // (R // B)
    start_R = ((image_R * S + top_R) * S + left_R) * 3
    cuts = zip(start_R.tolist(), height_R.tolist(), width_R.tolist(), strict=True)
    x_RHWC = images.new_empty(R, size, size, 3)
    strides = (S * S * 3, 1, S * 3, 3)
    resize = torch.ops.aten._upsample_bilinear2d_aa.out
    for (start, height, width), out_1CHW in zip(
        cuts, x_RHWC.permute(0, 3, 1, 2).split(1), strict=True
    ):
        cut_1CHW = sources.as_strided((1, 3, height, width), strides, start)
        resize(cut_1CHW, (size, size), False, None, None, out=out_1CHW)
    x_RCHW = torch.empty(R, 3, size, size)
    return x_RCHW.copy_(x_RHWC.permute(0, 3, 1, 2)).div_(255)


def crop_by_products(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int) -> Tensor:
    """`crop` as rows_RHS @ image_SS @ columns_RWS^T, without a loop over rows."""
    B, S = images.shape[:2]
    R = len(box_R4)
    top_R, left_R, height_R, width_R = send(box_R4, images.device).unbind(1)
    flip_R = send(flip_R, images.device)
    rows_RHS = resampling(top_R, height_R, torch.zeros_like(flip_R), size, S).div_(255)
    columns_RWS = resampling(left_R, width_R, flip_R, size, S)
    image_BPS = images.permute(0, 3, 1, 2).float().reshape(B, 1, 3 * S, S)
    x_RCSW = (image_BPS @ columns_RWS.mT.view(B, R // B, S, size)).view(R, 3, S, size)
    return rows_RHS[:, None] @ x_RCSW


def resize(images: Tensor, size: int) -> Tensor:
    """Whole images resized with antialiasing, float32 [B, 3, size, size] in [0, 1].

    images is uint8 [B, S, S, 3]. As `crop_by_products`, with one matrix for all.
    """
    B, S = images.shape[:2]
    start_1 = torch.zeros(1, dtype=torch.int64, device=images.device)
    weight_WS = resampling(start_1, start_1 + S, start_1 > 0, size, S)[0]
    # Turned as bytes, a quarter of what floats would move.
    x_BCSS = images.permute(0, 3, 1, 2).contiguous().float()
    x_BCSW = (x_BCSS.view(-1, S) @ weight_WS.T).view(B, 3, S, size)
    return torch.matmul(weight_WS / 255, x_BCSW)


def resampling(
    start_R: Tensor, length_R: Tensor, flip_R: Tensor, size: int, source_size: int
) -> Tensor:
    """Weights [R, size, S] of source pixels in each output pixel: antialiased bilinear.

    As Pillow and torchvision: a triangle as wide as an output pixel, or as a source pixel where
    that is wider, cut at the crop's ends and scaled to sum 1.
    """
    scale_R11 = (length_R / size).view(-1, 1, 1)
    widest_R11 = scale_R11.clamp(min=1)
    out_1W = torch.arange(size, device=start_R.device)[None]
    out_RW = torch.where(flip_R[:, None], size - 1 - out_1W, out_1W)
    centre_RW1 = (out_RW[:, :, None] + 0.5) * scale_R11
    pixel_RS = torch.arange(source_size, device=start_R.device) - start_R[:, None]
    outside_RS = (pixel_RS < 0) | (pixel_RS >= length_R[:, None])
    place_R1S = (pixel_RS + 0.5).masked_fill_(outside_RS, torch.inf)[:, None]
    away_RWS = (place_R1S / widest_R11 - centre_RW1 / widest_R11).abs_()
    weight_RWS = away_RWS.neg_().add_(1).clamp_(min=0)
    return weight_RWS.div_(weight_RWS.sum(dim=2, keepdim=True))


class Turns(NamedTuple):
    """Rows in the order in which `jitter_` takes them, and how many have the hue as their k-th."""

    order_R: Tensor
    num_by_turn: tuple[int, int, int, int]


def jitter_turns(order_R4: Tensor, factor_R4: Tensor) -> Turns:
    """Rows whose hue comes last are the first, those without any jitter the last."""
    turn_R = (order_R4 == HUE).int().argmax(dim=1)
    key_R = torch.where((factor_R4 == factor_R4.new_tensor(NO_JITTER)).all(dim=1), -1, turn_R)
    first, second, third, fourth = (key_R == torch.arange(4)[:, None]).sum(dim=1).tolist()
    return Turns(key_R.argsort(descending=True, stable=True), (first, second, third, fourth))


def jitter_(x_RCHW: Tensor, order_R4: Tensor, factor_R4: Tensor, turns: Turns) -> None:
    """Brightness, contrast, saturation and hue, in each row's order, in place.

    The rows are in the order of `turns`, and so neighbours who take a step together: up to three
    of the other operations before the hue, the hue, up to three afterwards.
    """
    x_RCP = x_RCHW.flatten(2)
    factor_by_turn_R4 = factor_R4.gather(1, order_R4)
    first, second, third, fourth = turns.num_by_turn
    num_jittered = sum(turns.num_by_turn)

    def blend(start: int, stop: int, turn: int) -> None:
        if start < stop:
            rows = slice(start, stop)
            _blend_(x_RCP[rows], order_R4[rows, turn], factor_by_turn_R4[rows, turn])

    for turn, stop in enumerate((fourth + third + second, fourth + third, fourth)):
        blend(0, stop, turn)
    shift_R = factor_R4[:num_jittered, HUE].contiguous()
    if shift_R.any():
        _shift_hue_(x_RCP[:num_jittered], send(shift_R, x_RCP.device))
    for turn, start in enumerate((num_jittered - first, fourth + third, fourth), start=1):
        blend(start, num_jittered, turn)


def _blend_(x_RCP: Tensor, operation_R: Tensor, factor_R: Tensor) -> None:
    """f * x + (1 - f) * y clamped to [0, 1], y being black, the mean gray or the gray image.

    One expression serves every row, whichever operation is its turn.
    """
    rest_R = 1 - factor_R
    to_gray_R = torch.where(operation_R == SATURATION, rest_R, 0.0)
    to_mean_R = torch.where(operation_R == CONTRAST, rest_R, 0.0)
    amounts = torch.stack([factor_R, to_gray_R, to_mean_R])[:, :, None]
    keep_R1, to_gray_R1, to_mean_R1 = send(amounts, x_RCP.device).unbind(0)
    gray_RP = _gray(x_RCP)
    mean_R1 = gray_RP.mean(dim=1, keepdim=True)
    torch.addcmul(to_mean_R1 * mean_R1, gray_RP, to_gray_R1, out=gray_RP)
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
    red, green, blue = x_RC.unbind(1)
    gray_R: Tensor = red * GRAY[0]
    return gray_R.add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])


def grayscale(x_RC: Tensor, _: Tensor) -> Tensor:
    """Luma in every channel."""
    return _gray(x_RC)[:, None].expand_as(x_RC)


def _shift_hue_(x_RCP: Tensor, shift_R: Tensor) -> None:
    """Hue shifted by a share of the circle, through HSV, the circle being six sectors long."""
    red, green, blue = x_RCP.unbind(1)
    top = torch.maximum(red.maximum(green), blue)
    bottom = torch.minimum(red.minimum(green), blue)
    # 0 where a channel is on top, else 1; lerp chooses by it, in a fraction of where's time.
    below_red, below_green = (top - red).sign_(), (top - green).sign_()
    chroma = top.sub_(bottom)
    in_green, in_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sector = (green - blue).lerp_(in_green.lerp_(in_blue, below_green), below_red)
    hue = sector.div_(chroma.clamp(min=1e-12)).add_(6 * shift_R[:, None])
    hue.sub_((hue / 6).floor_(), alpha=6)
    # A channel's share of the chroma is a trapezoid over the circle.
    for channel, share in enumerate(
        (
            (hue - 3).abs_().sub_(1),
            (hue - 2).abs_().neg_().add_(2),
            hue.sub_(4).abs_().neg_().add_(2),
        )
    ):
        torch.addcmul(bottom, share.clamp_(0, 1), chroma, out=x_RCP[:, channel])


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
    x_RCHW.sub_(mean).div_(std)
    if order_R is None:
        return x_RCHW.contiguous(memory_format=torch.channels_last)
    place_R = send(order_R.argsort(), x_RCHW.device)
    # Sorts and changes the layout at once.
    return x_RCHW.permute(0, 2, 3, 1).index_select(0, place_R).permute(0, 3, 1, 2)
