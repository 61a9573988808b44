"""Augmented views of stored images, for a whole batch at once, on the images' device.

Each view is torchvision's RandomResizedCrop (antialiased), horizontal flip, ColorJitter,
RandomGrayscale, GaussianBlur and RandomSolarize, each row with its own random parameters. Drawing
parameters is separate from applying them: they come from a CPU generator alone, so they are the
same for any device and any number of ranks. R counts the B * V rows.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.base.plugins import check_shape
from mtcon_ray.data import augmentations as ops
from mtcon_ray.data.batch import send, send_together
from mtcon_ray.data.resizing import crop_by_taps, random_boxes, resize
from mtcon_ray.spec.views import ViewsSpec

log = logging.getLogger(__name__)

CROP_TRIES = 10
# Random numbers per view: the crop, whether it is jittered, the jitter's four strengths, the blur's
# sigma, whether it is flipped, the jitter's order, whether it is gray, whether it is blurred,
# whether it is solarised. A new number must be last, because it changes all numbers after it.
DRAWS = (4 * CROP_TRIES, 1, 4, 1, 1, 4, 1, 1, 1)


@dataclass(frozen=True)
class ViewParameters:
    """The random parameters of R views, CPU tensors.

    box_R4 is the crop in the stored image, int64: top, left, height, width.
    flip_R is True for a view mirrored left to right, grayscale_R for a view without colours, bool.
    order_R4 has the colour operations in order of application, int64: 0..3 as in factor_R4's
    columns.
    factor_R4 has factors of brightness, contrast and saturation, and a shift of hue in turns,
    float32. 1, 1, 1 and 0 stand for none.
    blur_R is the sigma of the Gaussian in pixels, float32, 0 for none.
    solarise_R is the threshold in (0, 1) from which values are inverted, float32, 0 for none.
    draw_RK has the random numbers of a plugin's augmentation (`views.extra`), float32.
    """

    box_R4: Tensor
    flip_R: Tensor
    order_R4: Tensor
    factor_R4: Tensor
    grayscale_R: Tensor
    blur_R: Tensor
    solarise_R: Tensor
    draw_RK: Tensor

    def rows(self, index: slice | Tensor) -> "ViewParameters":
        """Returns the parameters of the selected rows."""
        return ViewParameters(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def draw_parameters(
    num_rows: int, source_size: int, spec: ViewsSpec, generator: torch.Generator
) -> ViewParameters:
    """Draws parameters of `num_rows` views as a pure function of the generator's state.

    `source_size` is the side of the stored images in pixels. Row r is view r % num_views of its
    item. The number of draws does not depend on the spec, so changing one field does not change the
    other parameters of any view.
    """
    # NumPy: for so few numbers its operations start in half the time of torch's.
    draws = torch.rand(num_rows * sum(DRAWS), generator=generator, dtype=torch.float64).numpy()
    drawn = _parameters(draws, num_rows, source_size, spec)
    if (second := spec.second_view) is not None:
        other = _parameters(draws, num_rows, source_size, second)
        is_second_R = np.arange(num_rows) % spec.num_views % 2 == 1
        for name, each in drawn.items():
            each[is_second_R] = other[name][is_second_R]
    draw_RK = torch.rand(num_rows, spec.extra.num_draws if spec.extra else 0, generator=generator)
    return ViewParameters(**{k: torch.from_numpy(v) for k, v in drawn.items()}, draw_RK=draw_RK)


def _parameters(
    draws: np.ndarray, num_rows: int, source_size: int, spec: ViewsSpec
) -> dict[str, np.ndarray]:
    """Returns the fields of ViewParameters, by the spec's augmentations in every row."""
    box, jitter_R, strength, sigma_R, flip_R, order, grayscale_R, blur_R, solarise_R = np.split(
        draws, num_rows * np.cumsum(DRAWS[:-1])
    )
    reach_4 = np.array([spec.brightness, spec.contrast, spec.saturation, spec.hue])
    deviation_R4 = reach_4 * (2 * strength.reshape(num_rows, 4) - 1)
    is_jittered_R1 = jitter_R[:, None] < spec.jitter
    low, high = spec.blur_sigma
    threshold_R = np.where(solarise_R < spec.solarise, spec.solarise_threshold, 0)
    return {
        "box_R4": random_boxes(box.reshape(4, num_rows, CROP_TRIES), source_size, spec),
        "flip_R": flip_R < spec.flip,
        "order_R4": order.reshape(num_rows, 4).argsort(axis=1),
        "factor_R4": (ops.NO_JITTER + is_jittered_R1 * deviation_R4).astype(np.float32),
        "grayscale_R": grayscale_R < spec.grayscale,
        "blur_R": np.where(blur_R < spec.blur, low + (high - low) * sigma_R, 0).astype(np.float32),
        "solarise_R": threshold_R.astype(np.float32),
    }


@torch.no_grad()
def make_views(images: Tensor, parameters: ViewParameters, spec: ViewsSpec) -> Tensor:
    """Returns augmented, normalised views, float32 [B * V, 3, size, size] in channels_last.

    images is uint8 [B, S, S, 3]. Row b * V + v of the parameters gives view v of item b. On a GPU
    the views are made by a single kernel if Triton runs, see `view_kernel`.
    """
    B, S = images.shape[:2]
    assert images.shape[1:] == (S, S, 3), images.shape
    assert len(parameters.box_R4) % B == 0, (len(parameters.box_R4), B)
    kernel = view_kernel(images.device)
    with torch.autocast(images.device.type, enabled=False):
        make = partial(_views_by_kernel, kernel) if kernel else _views_by_rows
        return with_extra(make(images, parameters, spec), parameters.draw_RK, spec)


def with_extra(x_RCHW: Tensor, draw_RK: Tensor, spec: ViewsSpec) -> Tensor:
    """Returns the views after the spec's augmentation of a plugin, if any, in channels_last."""
    if spec.extra is None:
        return x_RCHW
    found: Tensor = spec.extra(x_RCHW, send(draw_RK, x_RCHW.device))
    what = f"augmentation {spec.extra.name!r}: the views"
    check_shape(what, found, tuple(x_RCHW.shape), "return a view per row")
    return found.to(x_RCHW.dtype, memory_format=torch.channels_last)


def _views_by_rows(images: Tensor, parameters: ViewParameters, spec: ViewsSpec) -> Tensor:
    """Computes `make_views` with each operation only on the rows to be changed."""
    turns = ops.jitter_turns(parameters.order_R4, parameters.factor_R4)
    rows, moments_2C = parameters.rows(turns.order_R), torch.tensor([spec.mean, spec.std])
    crops = [parameters.box_R4, parameters.flip_R, turns.order_R, turns.order_R.argsort()]
    blends_3R4 = ops.blend_amounts(rows.order_R4, rows.factor_R4)
    colours = [blends_3R4, ops.hue_shifts(rows.factor_R4, turns), moments_2C]
    sent = send_together([*crops, *colours], images.device)
    box_R4, flip_R, order_R, place_R, amount_3R4, shift_R, moments_2C = sent
    x_RCWH = crop_by_taps(images, box_R4, flip_R, spec.size, order_R)
    ops.jitter_(x_RCWH, amount_3R4, shift_R, turns)
    ops.apply_(x_RCWH, rows.grayscale_R, ops.grayscale)
    ops.apply_(x_RCWH, rows.blur_R, ops.blur)
    ops.apply_(x_RCWH, rows.solarise_R, ops.solarise)
    return ops.normalise_(x_RCWH.mT, moments_2C, place_R)


def _views_by_kernel(
    kernel: Callable[..., Tensor], images: Tensor, parameters: ViewParameters, spec: ViewsSpec
) -> Tensor:
    """Computes `make_views` with `coloured_crops`.

    Operations never drawn by the spec get no amounts. Triton compiles the kernel once for each
    combination of operations.
    """

    def drawn(name: str) -> bool:
        return any(getattr(each, name) > 0 for each in (spec, spec.second_view or spec))

    p, is_blurred = parameters, drawn("blur")
    given = {"box": p.box_R4, "flip": p.flip_R, "moments": torch.tensor([spec.mean, spec.std])}
    if drawn("jitter"):
        given["blend"] = ops.blends_of_all(p.order_R4, p.factor_R4)
        if drawn("hue"):
            given["shift"] = p.factor_R4[:, ops.HUE].contiguous()
    if drawn("grayscale"):
        given["gray"] = p.grayscale_R
    if drawn("solarise") and not is_blurred:
        given["threshold"] = p.solarise_R.where(p.solarise_R > 0, torch.inf)
    sent = send_together(list(given.values()), images.device)
    amounts = dict(zip(given, sent, strict=True))
    if not is_blurred:
        return kernel(images, spec.size, **amounts)
    # A blurred pixel needs its neighbours with their colours changed.
    moments_2C = amounts.pop("moments")
    x_RCHW = kernel(images, spec.size, **amounts)
    ops.apply_(x_RCHW, p.blur_R, ops.blur)
    ops.apply_(x_RCHW, p.solarise_R, ops.solarise)
    return ops.normalise_(x_RCHW, moments_2C)


def example_views(images: Tensor, spec: ViewsSpec, seed: int) -> np.ndarray:
    """Returns a picture with a row per image: the image as it is evaluated, then views as trained.

    images is uint8 [B, S, S, 3], the picture uint8 [B * size, (1 + V) * size, 3].
    """
    generator, B = torch.Generator().manual_seed(seed), len(images)
    parameters = draw_parameters(B * spec.num_views, images.shape[1], spec, generator)
    x_BVCHW = make_views(images, parameters, spec).unflatten(0, (B, spec.num_views))
    x_BVCHW = torch.cat([evaluation_views(images, spec)[:, None], x_BVCHW], dim=1)
    mean, std = torch.tensor([spec.mean, spec.std]).view(2, 3, 1, 1)
    shown = (255 * (x_BVCHW * std + mean)).round().clamp(0, 255).byte()
    return np.asarray(shown.permute(0, 3, 1, 4, 2).reshape(B * spec.size, -1, 3))


@cache
def view_kernel(device: torch.device) -> Callable[..., Tensor] | None:
    """Returns `coloured_crops`, or None on a CPU or, with a warning, if Triton does not run."""
    if device.type != "cuda":
        return None
    try:
        from mtcon_ray.data.view_kernel import coloured_crops, try_kernel

        try_kernel(device)
    except Exception as error:  # of Triton, its compiler, the C compiler or the driver
        reason = str(error).strip().partition("\n")[0]
        log.warning("views take several times as long, because Triton does not run: %s", reason)
        return None
    return coloured_crops


@torch.no_grad()
def evaluation_views(images: Tensor, spec: ViewsSpec) -> Tensor:
    """Returns images resized with antialiasing and normalised, float32 [B, 3, size, size].

    images is uint8 [B, S, S, 3]. The result is in channels_last.
    """
    with torch.autocast(images.device.type, enabled=False):
        moments_2C = send(torch.tensor([spec.mean, spec.std]), images.device)
        return ops.normalise_(resize(images, spec.size), moments_2C)
