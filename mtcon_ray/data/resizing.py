"""Crops of stored images resized to a view, antialiased as Pillow and torchvision do it.

R rows, S side of a stored image, W and H columns and rows of a view, K taps. An output pixel is a
weighted mean of K source pixels, its taps. Antialiased resizing is separable: rows and columns are
resampled in separate passes.

A crop is float32 [R, 3, W, H] in [0, 1]. It is computed from images, uint8 [B, S, S, 3], where R is
a multiple of B. The second pass produces it transposed (columns before rows). Colour operations do
not depend on the layout, and `normalise_` transposes once at the end.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.spec.views import ViewsSpec

# Elements computed at a time between the two passes, per thread: 4 MiB, for the cache.
AT_WORK = 2**20


def random_boxes(draws_4RK: np.ndarray, source_size: int, spec: ViewsSpec) -> np.ndarray:
    """Returns RandomResizedCrop's boxes, int64 [R, 4]: top, left, height and width.

    The draws in [0, 1) give K tries per box. The box is the first try within the image, or the
    central crop if all tries fail.
    """
    area_share_RK, ratio_share_RK, *corner_shares = draws_4RK
    low, high = spec.crop_scale
    area_RK = source_size**2 * (low + (high - low) * area_share_RK)
    low, high = map(math.log, spec.crop_ratio)
    ratio_RK = np.exp(low + (high - low) * ratio_share_RK)
    sides_2RK = np.rint(np.sqrt([area_RK / ratio_RK, area_RK * ratio_RK]))
    corner_2RK = np.floor(corner_shares * (source_size + 1 - sides_2RK))
    fits_RK = (sides_2RK.max(axis=0) <= source_size) & (sides_2RK.min(axis=0) > 0)
    first_R = fits_RK.argmax(axis=1)
    tried_4RK = np.concatenate([corner_2RK, sides_2RK])
    box_R4 = tried_4RK[:, np.arange(len(first_R)), first_R].T.astype(np.int64)
    # The largest crop with an allowed aspect ratio.
    height = round(source_size / max(1, spec.crop_ratio[0]))
    width = round(source_size * min(1, spec.crop_ratio[1]))
    top, left = (source_size - height) // 2, (source_size - width) // 2
    box_R4[~fits_RK.any(axis=1)] = top, left, height, width
    return box_R4


def crop_by_taps(
    images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int, order_R: Tensor
) -> Tensor:
    """Returns crops by gathering their taps. Crop i has the box order_R[i].

    The first pass sums image rows. Each crop is then transposed, because the second pass, which
    sums columns, should gather contiguous memory too.
    """
    B, S = images.shape[:2]
    views_per_image = len(box_R4) // B
    row_FT = images.view(B * S, S * 3).float()
    at_once = max(1, AT_WORK * torch.get_num_threads() // (3 * S * size))
    parts = []
    for order_N in order_R.split(at_once):
        N = len(order_N)
        # Both axes' taps in a single call: such small operations cost mainly their start.
        start_2N, length_2N = box_R4[order_N].T.reshape(2, 2 * N).unbind(0)
        flip_2N = torch.cat([torch.zeros_like(flip_R[order_N]), flip_R[order_N]])
        pixel_2NUK, weight_2NUK = taps(start_2N, length_2N, flip_2N, size, S)
        source_NHK = pixel_2NUK[:N] + (order_N // views_per_image * S).int()[:, None, None]
        x_NHSC = _weighted_sums(row_FT, source_NHK, weight_2NUK[:N]).view(N, size, S, 3)
        column_GH = x_NHSC.permute(0, 3, 2, 1).reshape(N * 3 * S, size)
        first_N3 = torch.arange(0, N * 3 * S, S, dtype=torch.int32, device=images.device)
        source_NCWK = pixel_2NUK[N:, None] + first_N3.view(N, 3, 1, 1)
        weight_NCWK = weight_2NUK[N:].div_(255)[:, None].expand_as(source_NCWK)
        parts.append(_weighted_sums(column_GH, source_NCWK, weight_NCWK).view(N, 3, size, size))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _weighted_sums(row_FD: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Returns weighted sums [M, D] of K rows each; index and weight are [..., K]."""
    index_MK, weight_MK = index.flatten(0, -2), weight.flatten(0, -2)
    # embedding_bag gathers and sums in a single pass, without an [M, K, D] tensor.
    return F.embedding_bag(index_MK, row_FD, mode="sum", per_sample_weights=weight_MK)


def resize(images: Tensor, size: int) -> Tensor:
    """Returns whole images resized with antialiasing, float32 [B, 3, size, size] in [0, 1].

    images is uint8 [B, S, S, 3]. All images have the same taps, here as a matrix.
    """
    B, S = images.shape[:2]
    weight_WS = resampling(size, S, images.device)
    x_BCSS = images.permute(0, 3, 1, 2).contiguous().float()
    x_BCSW = (x_BCSS.view(-1, S) @ weight_WS.T).view(B, 3, S, size)
    return torch.matmul(weight_WS / 255, x_BCSW)


def resampling(size: int, source_size: int, device: torch.device | None = None) -> Tensor:
    """Returns the `taps` of a whole image as a matrix [size, S]."""
    start_1 = torch.zeros(1, dtype=torch.int64, device=device)
    pixels, weights = taps(start_1, start_1 + source_size, start_1 > 0, size, source_size)
    matrix_WS = weights.new_zeros(size, source_size)
    # Added, not set: taps beyond the end have weight 0 and the index of the last pixel.
    return matrix_WS.scatter_add_(1, pixels[0].long(), weights[0])


def taps(
    start_R: Tensor, length_R: Tensor, flip_R: Tensor, size: int, source_size: int
) -> tuple[Tensor, Tensor]:
    """Returns each output pixel's source pixels, int32 [R, size, K], and their weights.

    The weights form a triangle. Its half-width is the width of an output pixel or of a source
    pixel, whichever is wider. It is cut at the crop's ends and scaled to sum 1. K suffices for any
    crop. Superfluous taps have weight 0.
    """
    K = math.ceil(2 * max(1.0, source_size / size))
    length_R1 = length_R[:, None].float()
    scale_R1 = length_R1 / size
    widest_R1 = scale_R1.clamp(min=1)
    centre_RW = (torch.arange(size, device=start_R.device) + 0.5) * scale_R1
    centre_RW = torch.where(flip_R[:, None], length_R1 - centre_RW, centre_RW) - 0.5
    first_RW = (centre_RW - widest_R1).add_(1).floor_().clamp_(min=0)
    pixel_RWK = first_RW[:, :, None] + torch.arange(K, device=start_R.device)
    distance_RWK = (pixel_RWK - centre_RW[:, :, None]).abs_()
    last_R11 = length_R1[:, :, None] - 1
    weight_RWK = (widest_R1[:, :, None] - distance_RWK).clamp_(min=0)
    weight_RWK.masked_fill_(pixel_RWK > last_R11, 0)
    weight_RWK.div_(weight_RWK.sum(dim=2, keepdim=True))
    pixel_RWK = pixel_RWK.minimum(last_R11).add_(start_R[:, None, None])
    return pixel_RWK.int(), weight_RWK
