"""Crops of stored images brought to a view's size, antialiased as Pillow and torchvision do.

R rows, S side of a stored image, W and H columns and rows of a view, U either, K taps: the source
pixels that an output pixel is made of.
"""

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcon_ray.data.transfer import send

# Numbers between the two passes that are at work at a time, per thread: 4 MiB.
AT_WORK = 2**20
# Taps are kept for crops of every length, if they are so few: 32 MiB, stored images up to 1,024.
MOST_KEPT = 2**22


def crop(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int, order_R: Tensor) -> Tensor:
    """Crops resized with antialiasing, float32 [R, 3, W, H] in [0, 1]; R a multiple of B.

    images is uint8 [B, S, S, 3]; row order_R[i] is the i-th of the result. Columns come before
    rows, as the way to them leaves them: what comes next does not mind, and the last turns all.
    """
    B, S = images.shape[:2]
    assert images.shape[1:] == (S, S, 3), images.shape
    assert len(box_R4) % B == 0, (box_R4.shape, B)
    if images.device.type == "cpu":
        return crop_by_taps(images, box_R4, flip_R, size, order_R)
    x_RCWH = crop_by_products(images, box_R4, flip_R, size)
    return x_RCWH.index_select(0, send(order_R, images.device))


def crop_by_taps(
    images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int, order_R: Tensor
) -> Tensor:
    """`crop`, gathering what an output pixel is made of: on a CPU faster than products.

    First sums of rows, then, each crop turned, sums of columns.
    """
    B, S = images.shape[:2]
    R = len(box_R4)
    row_FT = images.view(B * S, S * 3).float()
    at_once = max(1, AT_WORK * torch.get_num_threads() // (3 * S * size))
    parts = []
    for order_N in order_R.split(at_once):
        N = len(order_N)
        top_N, left_N, height_N, width_N = box_R4[order_N].unbind(1)
        flip_N = flip_R[order_N]
        place_2NUK, weight_2NUK = _taps_kept(
            torch.cat([top_N, left_N]),
            torch.cat([height_N, width_N]),
            torch.cat([torch.zeros_like(flip_N), flip_N]),
            size,
            S,
        )
        place_NHK = place_2NUK[:N] + (order_N // (R // B) * S).int()[:, None, None]
        x_NHSC = _sums(row_FT, place_NHK, weight_2NUK[:N]).view(N, size, S, 3)
        column_GH = x_NHSC.permute(0, 3, 2, 1).reshape(N * 3 * S, size)
        first_NC = torch.arange(0, N * 3 * S, S, dtype=torch.int32).view(N, 3)
        place_NCWK = place_2NUK[N:, None] + first_NC[:, :, None, None]
        weight_NCWK = weight_2NUK[N:].div_(255)[:, None].expand_as(place_NCWK)
        parts.append(_sums(column_GH, place_NCWK, weight_NCWK).view(N, 3, size, size))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _taps_kept(
    start_R: Tensor, length_R: Tensor, flip_R: Tensor, size: int, source_size: int
) -> tuple[Tensor, Tensor]:
    """`taps`, looked up on the CPU: to compute them takes a twentieth of the views' time."""
    if 2 * source_size * size * _num_taps(size, source_size) > MOST_KEPT:
        return taps(start_R, length_R, flip_R, size, source_size)
    place_UWK, weight_UWK = _taps_of_lengths(size, source_size)
    index_R = length_R - 1 + source_size * flip_R
    place_RWK = place_UWK.index_select(0, index_R).add_(start_R.int()[:, None, None])
    return place_RWK, weight_UWK.index_select(0, index_R)


@lru_cache(maxsize=4)
def _taps_of_lengths(size: int, source_size: int) -> tuple[Tensor, Tensor]:
    """`taps` from pixel 0 on, of lengths 1 to S, and once more of these flipped."""
    length_U = torch.arange(1, source_size + 1, device="cpu").repeat(2)
    flip_U = torch.arange(2 * source_size, device="cpu") >= source_size
    return taps(torch.zeros_like(length_U), length_U, flip_U, size, source_size)


def _sums(row_FD: Tensor, place: Tensor, weight: Tensor) -> Tensor:
    """Weighted sums [M, D] of the rows at each K places."""
    K = place.shape[-1]
    return F.embedding_bag(
        place.view(-1, K), row_FD, mode="sum", per_sample_weights=weight.reshape(-1, K)
    )


def crop_by_products(images: Tensor, box_R4: Tensor, flip_R: Tensor, size: int) -> Tensor:
    """`crop` as columns_RWS @ image_SS^T @ rows_RHS^T, in the boxes' order."""
    B, S = images.shape[:2]
    R = len(box_R4)
    top_R, left_R, height_R, width_R = send(box_R4, images.device).unbind(1)
    flip_R = send(flip_R, images.device)
    rows_RHS = resampling(top_R, height_R, torch.zeros_like(flip_R), size, S).div_(255)
    columns_RWS = resampling(left_R, width_R, flip_R, size, S)
    image_BPS = images.permute(0, 3, 2, 1).float().reshape(B, 1, 3 * S, S)
    x_RCSH = (image_BPS @ rows_RHS.mT.view(B, R // B, S, size)).view(R, 3, S, size)
    return columns_RWS[:, None] @ x_RCSH


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
    """`taps` as a matrix [R, size, S] for each row."""
    place_RWK, weight_RWK = taps(start_R, length_R, flip_R, size, source_size)
    matrix_RWS = weight_RWK.new_zeros(len(start_R), size, source_size)
    return matrix_RWS.scatter_add_(2, place_RWK.long(), weight_RWK)


def taps(
    start_R: Tensor, length_R: Tensor, flip_R: Tensor, size: int, source_size: int
) -> tuple[Tensor, Tensor]:
    """Where the taps of each output pixel lie, int32 [R, size, K], and what they weigh.

    A triangle as wide as an output pixel, or as a source pixel where that is wider, cut at the
    crop's ends and scaled to sum 1. K serves any crop; who needs fewer has taps of weight 0.
    """
    K = _num_taps(size, source_size)
    length_R1 = length_R[:, None].float()
    scale_R1 = length_R1 / size
    widest_R1 = scale_R1.clamp(min=1)
    centre_RW = (torch.arange(size, device=start_R.device) + 0.5) * scale_R1
    centre_RW = torch.where(flip_R[:, None], length_R1 - centre_RW, centre_RW) - 0.5
    first_RW = (centre_RW - widest_R1).add_(1).floor_().clamp_(min=0)
    pixel_RWK = first_RW[:, :, None] + torch.arange(K, device=start_R.device)
    away_RWK = (pixel_RWK - centre_RW[:, :, None]).abs_()
    last_R11 = length_R1[:, :, None] - 1
    weight_RWK = (widest_R1[:, :, None] - away_RWK).clamp_(min=0)
    weight_RWK.masked_fill_(pixel_RWK > last_R11, 0)
    weight_RWK.div_(weight_RWK.sum(dim=2, keepdim=True))
    place_RWK = pixel_RWK.minimum(last_R11).add_(start_R[:, None, None])
    return place_RWK.int(), weight_RWK


def _num_taps(size: int, source_size: int) -> int:
    return math.ceil(2 * max(1.0, source_size / size))
