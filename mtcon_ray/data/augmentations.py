"""What is done to a batch of views, each row with its own strength, as torchvision does it.

R rows, S side of a stored image, H and W of a view, P = H * W its pixels, three channels. Amounts
lie on the CPU, so that choosing rows never waits for the device.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mtcon_ray.data.transfer import send

GRAY = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def crop(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int) -> Tensor:
    """Crops resized with antialiasing, float32 [R, 3, size, size] in [0, 1]; R a multiple of B.

    images is uint8 [B, S, S, 3]. On a CPU in 8 bits, as Pillow does it: there torch's kernel for
    bytes is several times as fast as anything in floating point.
    """
    B, S = images.shape[:2]
    assert images.shape[1:] == (S, S, 3), images.shape
    assert len(box_R4) % B == 0, (box_R4.shape, B)
    by_device = crop_in_bytes if images.device.type == "cpu" else crop_by_products
    return by_device(images, box_R4, flip_R, size)


def crop_in_bytes(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int) -> Tensor:
    """`crop`, row by row, each rounded to 8 bits."""
    B, S = images.shape[:2]
    R = len(box_R4)
    top_R, left_R, height_R, width_R = box_R4.unbind(1)
    # Cheaper than to mirror the crops: from the mirrored image, at the mirrored place.
    sources = torch.stack([images, images.flip(2)])
    left_R = torch.where(flip_R, S - left_R - width_R, left_R)
    image_R = flip_R * B + torch.arange(R) // (R // B)
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


def jitter_(x_RCHW: Tensor, order_R4: Tensor, factor_R4: Tensor) -> None:
    """Brightness, contrast, saturation and hue, in each row's order, in place.

    The first three are f * x + (1 - f) * y clamped to [0, 1], y being black, the mean gray and
    the gray image, so one expression serves every row, whichever is its turn.
    """
    x_RCP = x_RCHW.flatten(2)
    for operation_R, factor_R in zip(
        order_R4.unbind(1), factor_R4.gather(1, order_R4).unbind(1), strict=True
    ):
        rest_R = torch.where(operation_R == HUE, 0.0, 1 - factor_R)
        to_gray_R = torch.where(operation_R == SATURATION, rest_R, 0.0)
        to_mean_R = torch.where(operation_R == CONTRAST, rest_R, 0.0)
        amounts = torch.stack([1 - rest_R, to_gray_R, to_mean_R])[:, :, None]
        keep_R1, to_gray_R1, to_mean_R1 = send(amounts, x_RCP.device).unbind(0)
        gray_RP = _gray(x_RCP)
        mean_R1 = gray_RP.mean(dim=1, keepdim=True)
        gray_RP.mul_(to_gray_R1).add_(to_mean_R1 * mean_R1)
        torch.addcmul(gray_RP[:, None], x_RCP, keep_R1[:, None], out=x_RCP).clamp_(0, 1)
        turned_R = torch.where(operation_R == HUE, factor_R, 0.0)
        apply_(x_RCP, turned_R, _shift_hue)


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


def _shift_hue(x_RCP: Tensor, turns_R: Tensor) -> Tensor:
    """Hue shifted by a share of the circle, through HSV, the circle being six sectors long."""
    red, green, blue = x_RCP.unbind(1)
    top = torch.maximum(red.maximum(green), blue)
    bottom = torch.minimum(red.minimum(green), blue)
    # 0 where a channel is on top, else 1; lerp chooses by it, in a fraction of where's time.
    below_red, below_green = (top - red).sign_(), (top - green).sign_()
    chroma = top.sub_(bottom)
    in_green, in_blue = (blue - red).add_(chroma, alpha=2), (red - green).add_(chroma, alpha=4)
    sector = (green - blue).lerp_(in_green.lerp_(in_blue, below_green), below_red)
    hue = sector.div_(chroma.clamp(min=1e-12)).add_(6 * turns_R[:, None])
    hue.sub_((hue / 6).floor_(), alpha=6)
    out_RCP = torch.empty_like(x_RCP)
    # A channel's share of the chroma is a trapezoid over the circle.
    for channel, share in enumerate(
        (
            (hue - 3).abs_().sub_(1),
            (hue - 2).abs_().neg_().add_(2),
            hue.sub_(4).abs_().neg_().add_(2),
        )
    ):
        torch.addcmul(bottom, share.clamp_(0, 1), chroma, out=out_RCP[:, channel])
    return out_RCP


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


def normalise_(x_RCHW: Tensor, mean_C: Sequence[float], std_C: Sequence[float]) -> Tensor:
    """Views in channels_last, less the mean and over the deviation; x is spoilt."""
    moments = torch.tensor([mean_C, std_C], dtype=x_RCHW.dtype)
    mean, std = send(moments, x_RCHW.device).view(2, 1, 3, 1, 1)
    return x_RCHW.sub_(mean).div_(std).contiguous(memory_format=torch.channels_last)
