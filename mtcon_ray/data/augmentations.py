"""What is done to a batch of views, each row with its own strength, as torchvision does it.

R rows, S side of a stored image, H and W of a view, C its three channels. Views lie as
[R, H, C, W], which is what two matrix products make of an image. Amounts lie on the CPU, so
that choosing rows never waits for the device.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

GRAY = (0.2989, 0.587, 0.114)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


def crop(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int) -> Tensor:
    """Crops resized to [R, size, 3, size] in [0, 1]: rows_RHS @ image_SCS @ columns_RWS^T."""
    B, S = images.shape[:2]
    R = len(box_R4)
    assert images.shape[1:] == (S, S, 3), images.shape
    assert R % B == 0, (R, B)
    top_R, left_R, height_R, width_R = box_R4.to(images.device).unbind(1)
    flip_R = flip_R.to(images.device)
    rows_RHS = resampling(top_R, height_R, torch.zeros_like(flip_R), size, S).div_(255)
    columns_RWS = resampling(left_R, width_R, flip_R, size, S)
    image_BSCS = images.transpose(2, 3).contiguous().float()
    x_RHCS = rows_RHS.view(B, -1, S) @ image_BSCS.view(B, S, 3 * S)
    x_RHCW = x_RHCS.view(R, size * 3, S) @ columns_RWS.transpose(1, 2)
    return x_RHCW.view(R, size, 3, size)


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


def jitter_(x_RHCW: Tensor, order_R4: Tensor, factor_R4: Tensor) -> None:
    """Brightness, contrast, saturation and hue, in each row's order, in place.

    The first three are f * x + (1 - f) * y clamped to [0, 1], y being black, the mean gray and
    the gray image, so one expression serves every row, whichever is its turn.
    """
    for operation_R, factor_R in zip(
        order_R4.unbind(1), factor_R4.gather(1, order_R4).unbind(1), strict=True
    ):
        rest_R = torch.where(operation_R == HUE, 0.0, 1 - factor_R)
        to_gray_R = torch.where(operation_R == SATURATION, rest_R, 0.0)
        to_mean_R = torch.where(operation_R == CONTRAST, rest_R, 0.0)
        keep, to_gray, to_mean = (
            torch.stack([1 - rest_R, to_gray_R, to_mean_R])[:, :, None, None, None]
            .to(x_RHCW.device)
            .unbind(0)
        )
        gray_RH1W = _gray(x_RHCW)
        mean_R111 = gray_RH1W.mean(dim=(1, 2, 3), keepdim=True)
        gray_RH1W.mul_(to_gray).add_(to_mean * mean_R111)
        x_RHCW.mul_(keep).add_(gray_RH1W).clamp_(0, 1)
        turned = torch.where(operation_R == HUE, factor_R, 0.0)
        apply_(x_RHCW, turned, _shift_hue)


def apply_(x_RHCW: Tensor, amount_R: Tensor, operation: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Replaces the rows with an amount other than 0 by operation(rows, their amounts)."""
    index_K = amount_R.nonzero().flatten()
    if len(index_K) > 0:
        amount_K = amount_R[index_K].to(x_RHCW.device)
        index_K = index_K.to(x_RHCW.device)
        x_RHCW.index_copy_(0, index_K, operation(x_RHCW.index_select(0, index_K), amount_K))


def _gray(x_RHCW: Tensor) -> Tensor:
    """Luma [R, H, 1, W]."""
    red, green, blue = x_RHCW.split(1, dim=2)
    gray_RH1W: Tensor = red * GRAY[0]
    return gray_RH1W.add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])


def grayscale(x_RHCW: Tensor, _: Tensor) -> Tensor:
    """Luma in every channel."""
    return _gray(x_RHCW).expand_as(x_RHCW)


def _shift_hue(x_RHCW: Tensor, turns_R: Tensor) -> Tensor:
    """Hue shifted by a share of the circle, through HSV.

    A channel is top - chroma * clamp(2 - 6 d, 0, 1), d being the way on the circle of length 1
    from the hue to the channel's complement.
    """
    red, green, blue = x_RHCW.split(1, dim=2)
    top = red.maximum(green).maximum(blue)
    chroma = top - red.minimum(green).minimum(blue)
    sector = torch.where(
        top == red,
        green - blue,
        torch.where(
            top == green,
            (blue - red).add_(chroma, alpha=2),
            (red - green).add_(chroma, alpha=4),
        ),
    )
    hue = sector.div_(chroma.clamp(min=1e-12) * 6).add_(turns_R.view(-1, 1, 1, 1))
    way = hue - hue.new_tensor([3, 5, 1]).div_(6).view(1, 1, 3, 1)
    way.sub_(way.round()).abs_()
    return torch.addcmul(top, way.mul_(-6).add_(2).clamp_(0, 1), chroma, value=-1)


def blur(x_RHCW: Tensor, sigma_R: Tensor) -> Tensor:
    """Gaussian blur, reflecting at the border; the kernel is odd, about a tenth of the side."""
    size = x_RHCW.shape[1]
    reach = max(1, size // 20)
    offset_K = torch.arange(-reach, reach + 1, device=x_RHCW.device)
    kernel_RK = (-0.5 * (offset_K / sigma_R[:, None]).square()).softmax(dim=1)
    pixel_S1 = torch.arange(size, device=x_RHCW.device)[:, None]
    source_SK = (size - 1) - ((size - 1) - (pixel_S1 + offset_K).abs()).abs()
    matrix_RSS = x_RHCW.new_zeros(len(sigma_R), size, size)
    matrix_RSS.scatter_add_(
        2, source_SK.expand(len(sigma_R), -1, -1), kernel_RK[:, None].expand(-1, size, -1)
    )
    blurred_RHP = matrix_RSS @ x_RHCW.flatten(2)
    blurred_RPW = blurred_RHP.view(-1, 3 * size, size) @ matrix_RSS.transpose(1, 2)
    return blurred_RPW.view_as(x_RHCW)


def normalise_(x_RHCW: Tensor, mean_C: Sequence[float], std_C: Sequence[float]) -> Tensor:
    """Views [R, 3, H, W] in channels_last, less the mean and over the deviation; x is spoilt."""
    mean, std = x_RHCW.new_tensor([mean_C, std_C]).view(2, 1, 1, 3, 1)
    x_RCHW = x_RHCW.sub_(mean).div_(std).transpose(1, 2)
    return x_RCHW.contiguous(memory_format=torch.channels_last)
