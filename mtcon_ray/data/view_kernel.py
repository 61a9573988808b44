"""Views on a GPU in a single Triton kernel, equal to `augmentations` up to rounding.

Each of torch's operations reads and writes all views in the device's memory, some sixty times a
step. Here a program computes a single view and keeps a pixel in registers from the crop to the
normalisation. Only the contrast needs more than a pixel, the mean gray of its view. A first pass
crops, stores the pixels and sums their gray as it is at the turn of the contrast. A second pass
reads the stored pixels and applies all operations.

Triton compiles the kernel at its first launch, in seconds, and keeps the result on disk. It needs
a C compiler with Python's headers for its own start.

The functions below `kernel` are compiled, too. `rgb` is a tuple of the three channels of some
pixels. Only compile-time constants have types, because Triton reads no others. Triton 3.6, which
torch 2.11 brings, compiles comprehensions with a single variable alone.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl
from torch import Tensor

from mtcon_ray.data.augmentations import GRAY

RED, GREEN, BLUE = (tl.constexpr(weight) for weight in GRAY)
NUM_BLENDS = tl.constexpr(6)
HUE_TURN = tl.constexpr(3)  # blends before the hue
# Pixels of a view computed by a program at a time, and its warps.
AT_ONCE, WARPS = tl.constexpr(512), 8
# The amounts of the operations. Packed into a buffer they may have any alignment. A CUDA graph must
# find the kernel compiled in the steps before its capture, which cannot compile anything.
AMOUNTS = ["box", "flip", "blend", "shift", "gray", "threshold", "moments"]


def coloured_crops(images: Tensor, size: int, **amounts: Tensor) -> Tensor:
    """Returns crops after each operation with given amounts, float32 [R, 3, size, size].

    images is uint8 [B, S, S, 3]. The amounts are named as in AMOUNTS. box [R, 4] and flip [R] must
    be given, blend [3, R, 6] comes from `blends_of_all`, and shift, gray and threshold are [R]. A
    threshold of infinity changes nothing. If moments [2, 3] are given, the result is normalised and
    in channels_last.
    """
    S, R = images.shape[1], len(amounts["box"])
    assert all(each.is_contiguous() for each in amounts.values())
    layout = torch.channels_last if "moments" in amounts else torch.contiguous_format
    x_RCHW = torch.empty((R, 3, size, size), device=images.device, memory_format=layout)
    with torch.cuda.device_of(images):  # Triton launches on the current device
        kernel[(R,)](
            images.contiguous(),
            *map(amounts.get, AMOUNTS),
            x_RCHW,
            views_per_image=R // len(images),
            source_size=S,
            size=size,
            num_taps=triton.cdiv(2 * max(S, size), size),
            channel_stride=x_RCHW.stride(1),
            column_stride=x_RCHW.stride(3),
            num_warps=WARPS,
            enable_fp_fusion=True,
        )
    return x_RCHW


def try_kernel(device: torch.device) -> None:
    """Compiles and launches the smallest kernel. Raises Triton's error if it fails."""
    images = torch.zeros((1, 8, 8, 3), dtype=torch.uint8, device=device)
    box_14 = torch.tensor([[0, 0, 8, 8]], device=device)
    coloured_crops(images, 8, box=box_14, flip=torch.zeros(1, device=device) > 0)


@triton.jit(do_not_specialize_on_alignment=AMOUNTS)
def kernel(
    images, box, flip, blend, shift, gray, threshold, moments, out,
    views_per_image: tl.constexpr, source_size: tl.constexpr, size: tl.constexpr,
    num_taps: tl.constexpr, channel_stride: tl.constexpr, column_stride: tl.constexpr,
):  # fmt: skip
    """Computes the view of a row. An operation without amounts is not compiled."""
    row = tl.program_id(0).to(tl.int64)
    image = images + row // views_per_image * source_size * source_size * 3
    view = out + row * 3 * size * size
    mean = 0.0
    if blend is not None:
        total = tl.zeros([AT_ONCE], tl.float32)
        for start in range(0, size * size, AT_ONCE):
            pixel = start + tl.arange(0, AT_ONCE)
            is_there, at = pixel < size * size, view + pixel * column_stride
            rgb = _crop(image, box, flip, row, pixel, source_size, size, num_taps)
            _store(at, channel_stride, rgb, is_there)
            # The colours after the contrast are wrong without its mean, but are not read.
            _, luma = _jitter(rgb, blend, shift, row, 0.0)
            total += tl.where(is_there, luma, 0.0)
        mean = tl.sum(total) / (size * size)
        # Another thread of the program may read the values stored by this thread.
        tl.debug_barrier()
    for start in range(0, size * size, AT_ONCE):
        pixel = start + tl.arange(0, AT_ONCE)
        is_there, at = pixel < size * size, view + pixel * column_stride
        if blend is not None:
            places = (at, at + channel_stride, at + 2 * channel_stride)
            rgb = [tl.load(place, mask=is_there, other=0.0) for place in places]
            rgb, _ = _jitter(rgb, blend, shift, row, mean)
        else:
            rgb = _crop(image, box, flip, row, pixel, source_size, size, num_taps)
        if gray is not None:
            is_gray, luma = tl.load(gray + row), _gray(rgb)
            rgb = [tl.where(is_gray, luma, channel) for channel in rgb]
        if threshold is not None:
            limit = tl.load(threshold + row)
            rgb = [tl.where(channel < limit, channel, 1 - channel) for channel in rgb]
        if moments is not None:
            red, green, blue = rgb
            red = (red - tl.load(moments)) / tl.load(moments + 3)
            green = (green - tl.load(moments + 1)) / tl.load(moments + 4)
            blue = (blue - tl.load(moments + 2)) / tl.load(moments + 5)
            rgb = red, green, blue
        _store(at, channel_stride, rgb, is_there)


@triton.jit
def _store(at, channel_stride: tl.constexpr, rgb, is_there):
    """Stores the pixels in place."""
    red, green, blue = rgb
    tl.store(at, red, mask=is_there)
    tl.store(at + channel_stride, green, mask=is_there)
    tl.store(at + 2 * channel_stride, blue, mask=is_there)


@triton.jit
def _crop(
    image, box, flip, row, pixel,
    source_size: tl.constexpr, size: tl.constexpr, num_taps: tl.constexpr,
):  # fmt: skip
    """Returns the pixels' channels in [0, 1]: means of the stored pixels, weighted as by `taps`."""
    top, left = tl.load(box + 4 * row), tl.load(box + 4 * row + 1)
    height, width = tl.load(box + 4 * row + 2), tl.load(box + 4 * row + 3)
    y_centre, y_first, y_widest = _centre(pixel // size, height, False, size)
    x_centre, x_first, x_widest = _centre(pixel % size, width, tl.load(flip + row), size)
    red = tl.zeros(pixel.shape, tl.float32)
    green, blue, total = red, red, red
    for i in range(num_taps):
        y, y_weight = _tap(y_first + i, y_centre, y_widest, height)
        for j in range(num_taps):
            x, x_weight = _tap(x_first + j, x_centre, x_widest, width)
            weight = y_weight * x_weight
            # Beyond the last pixel the tap is within the crop, and so within the image.
            at = image + ((y + top) * source_size + x + left) * 3
            red += weight * tl.load(at).to(tl.float32)
            green += weight * tl.load(at + 1).to(tl.float32)
            blue += weight * tl.load(at + 2).to(tl.float32)
            total += weight
    share = 1 / (255 * tl.maximum(total, 1e-6))  # the total is 0 beyond a view's last pixel
    return red * share, green * share, blue * share


@triton.jit
def _centre(at, length, is_flipped, size: tl.constexpr):
    """Returns an output pixel's centre in the crop, its first tap and its taps' half-width."""
    scale = length.to(tl.float32) / size
    widest = tl.maximum(scale, 1.0)
    centre = (at.to(tl.float32) + 0.5) * scale
    centre = tl.where(is_flipped, length.to(tl.float32) - centre, centre) - 0.5
    return centre, tl.maximum(tl.floor(centre - widest + 1), 0.0), widest


@triton.jit
def _tap(place, centre, widest, length):
    """Returns the pixel of a tap, at most the crop's last pixel, and its weight."""
    last = length.to(tl.float32) - 1
    weight = tl.maximum(widest - tl.abs(place - centre), 0.0)
    return tl.minimum(place, last).to(tl.int32), tl.where(place > last, 0.0, weight)


@triton.jit
def _jitter(rgb, blend, shift, row, mean):
    """Returns the channels as `jitter_` changes them, and the luma at the turn of the contrast.

    mean is the view's mean of this luma, which is 0 without a contrast.
    """
    at_contrast = tl.zeros(rgb[0].shape, tl.float32)
    for turn in tl.static_range(NUM_BLENDS):
        if turn == HUE_TURN and shift is not None:
            rgb = _shift_hue(rgb, tl.load(shift + row))
        at, part = blend + row * NUM_BLENDS + turn, tl.num_programs(0).to(tl.int64) * NUM_BLENDS
        keep, to_gray, to_mean = tl.load(at), tl.load(at + part), tl.load(at + 2 * part)
        luma = _gray(rgb)
        at_contrast += tl.where(to_mean != 0, luma, 0.0)
        other = to_gray * luma + to_mean * mean
        rgb = [tl.clamp(keep * channel + other, 0.0, 1.0) for channel in rgb]
    return rgb, at_contrast


@triton.jit
def _gray(rgb):
    """Returns the luma."""
    red, green, blue = rgb
    return red * RED + green * GREEN + blue * BLUE


@triton.jit
def _shift_hue(rgb, shift):
    """Returns the channels with the hue shifted by a fraction of the circle, as in `jitter_`."""
    red, green, blue = rgb
    top = tl.maximum(tl.maximum(red, green), blue)
    bottom = tl.minimum(tl.minimum(red, green), blue)
    chroma = top - bottom
    beside = tl.where(top == green, blue - red + 2 * chroma, red - green + 4 * chroma)
    sector = tl.where(top == red, green - blue, beside)
    turns = shift + 1 + sector / (6 * tl.maximum(chroma, 1e-12))
    hue = 6 * (turns - tl.floor(turns))
    # The distance in sectors from the middle of each channel's trapezoid, within [1, 2].
    near = [tl.clamp(tl.abs(hue - middle), 1.0, 2.0) for middle in (3.0, 2.0, 4.0)]
    red, green, blue = [(distance - 1) * chroma for distance in near]
    return bottom + red, top - green, top - blue
