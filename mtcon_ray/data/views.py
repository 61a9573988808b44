"""Augmented views of stored images, for a whole batch at once, on the images' device.

Each view is torchvision's RandomResizedCrop (antialiased), horizontal flip, ColorJitter,
RandomGrayscale and GaussianBlur, each row with its own random parameters. Drawing parameters is
separate from applying them: they come from a CPU generator alone, so they are the same for any
device and any number of ranks. R counts the B * V rows.
"""

import math
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from mtcon_ray.data.augmentations import (
    NO_JITTER,
    apply_,
    blur,
    grayscale,
    jitter_,
    jitter_turns,
    normalise_,
)
from mtcon_ray.data.resizing import crop, resize
from mtcon_ray.registry import Spec

CROP_TRIES = 10
# Random numbers per view: the crop, whether it is jittered, the jitter's four strengths, the blur's
# sigma, whether it is flipped, the jitter's order, whether it is gray, whether it is blurred.
DRAWS = (4 * CROP_TRIES, 1, 4, 1, 1, 4, 1, 1)


class ViewsSpec(Spec):
    """Augmentations that make `num_views` views of an image (SupContrast, arXiv:2004.11362)."""

    size: int = Field(64, ge=8, le=1024, description="side of a view, pixels")
    num_views: int = Field(2, ge=1, le=16, description="augmented views of an image in a step")
    crop_scale: tuple[float, float] = Field(
        (0.2, 1.0), description="random crop: least and greatest share of the area"
    )
    crop_ratio: tuple[float, float] = Field(
        (3 / 4, 4 / 3), description="random crop: least and greatest width over height"
    )
    flip: float = Field(0.5, ge=0, le=1, description="probability of a left-right flip")
    jitter: float = Field(0.8, ge=0, le=1, description="probability of the colour jitter")
    brightness: float = Field(0.4, ge=0, le=1, description="factor within 1 ± this")
    contrast: float = Field(0.4, ge=0, le=1, description="factor within 1 ± this")
    saturation: float = Field(0.4, ge=0, le=1, description="factor within 1 ± this")
    hue: float = Field(0.1, ge=0, le=0.5, description="shift within ± this share of the circle")
    grayscale: float = Field(0.2, ge=0, le=1, description="probability of losing all colour")
    blur: float = Field(0.0, ge=0, le=1, description="probability of a Gaussian blur")
    blur_sigma: tuple[float, float] = Field((0.1, 2.0), description="blur: sigma range, pixels")
    mean: tuple[float, float, float] = Field(
        (0.485, 0.456, 0.406), description="subtracted from each channel, in [0, 1]"
    )
    std: tuple[float, float, float] = Field(
        (0.229, 0.224, 0.225), description="divides each channel, in [0, 1]"
    )

    @model_validator(mode="after")
    def _ranges_are_ordered(self) -> Self:
        for name, top in (("crop_scale", 1.0), ("crop_ratio", 100.0), ("blur_sigma", 100.0)):
            low, high = getattr(self, name)
            if not 0 < low <= high <= top:
                raise ValueError(
                    f"{name} must satisfy 0 < low <= high <= {top:g}, got {low}, {high}"
                )
        if min(self.std) <= 0:
            raise ValueError(f"std must be positive in each channel, got {self.std}")
        return self


@dataclass(frozen=True)
class ViewParameters:
    """The random parameters of R views, CPU tensors."""

    box_R4: Tensor
    """Crop in the stored image, int64: top, left, height, width."""
    flip_R: Tensor
    """Mirrored left to right, bool."""
    order_R4: Tensor
    """Colour operations in order of application, int64: 0..3 as in factor_R4's columns."""
    factor_R4: Tensor
    """Factors of brightness, contrast, saturation and shift of hue in turns; 1, 1, 1, 0: none."""
    grayscale_R: Tensor
    """All colour lost, bool."""
    blur_R: Tensor
    """Sigma of the Gaussian in pixels, float32; 0: none."""

    def rows(self, index: slice | Tensor) -> "ViewParameters":
        """Returns the parameters of the selected rows."""
        return ViewParameters(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


def draw_parameters(
    num_rows: int, source_size: int, spec: ViewsSpec, generator: torch.Generator
) -> ViewParameters:
    """Draws parameters of `num_rows` views; a pure function of the generator's state.

    `source_size` is the side of the stored images in pixels. The number of draws does not depend on
    the spec, so changing one field does not change the other parameters of any view.
    """
    # NumPy: for so few numbers its operations start in half the time of torch's.
    draws = torch.rand(num_rows * sum(DRAWS), generator=generator, dtype=torch.float64).numpy()
    box, jitter_R, strength, sigma_R, flip_R, order, grayscale_R, blur_R = np.split(
        draws, num_rows * np.cumsum(DRAWS[:-1])
    )
    reach_4 = np.array([spec.brightness, spec.contrast, spec.saturation, spec.hue])
    deviation_R4 = reach_4 * (2 * strength.reshape(num_rows, 4) - 1)
    is_jittered_R1 = jitter_R[:, None] < spec.jitter
    low, high = spec.blur_sigma
    drawn = {
        "box_R4": _boxes(box.reshape(4, num_rows, CROP_TRIES), source_size, spec),
        "flip_R": flip_R < spec.flip,
        "order_R4": order.reshape(num_rows, 4).argsort(axis=1),
        "factor_R4": (NO_JITTER + is_jittered_R1 * deviation_R4).astype(np.float32),
        "grayscale_R": grayscale_R < spec.grayscale,
        "blur_R": np.where(blur_R < spec.blur, low + (high - low) * sigma_R, 0).astype(np.float32),
    }
    return ViewParameters(**{name: torch.from_numpy(each) for name, each in drawn.items()})


def _boxes(draws_4RK: np.ndarray, source_size: int, spec: ViewsSpec) -> np.ndarray:
    """Returns RandomResizedCrop's boxes [R, 4]: the first try that fits, else the central crop."""
    area_share_RK, ratio_share_RK, *corner_shares = draws_4RK
    low, high = spec.crop_scale
    area_RK = source_size**2 * (low + (high - low) * area_share_RK)
    low, high = math.log(spec.crop_ratio[0]), math.log(spec.crop_ratio[1])
    ratio_RK = np.exp(low + (high - low) * ratio_share_RK)
    sides_2RK = np.rint(np.sqrt([area_RK / ratio_RK, area_RK * ratio_RK]))
    corner_2RK = np.floor(corner_shares * (source_size + 1 - sides_2RK))
    fits_RK = (sides_2RK.max(axis=0) <= source_size) & (sides_2RK.min(axis=0) > 0)
    first_R = fits_RK.argmax(axis=1)
    tried_4RK = np.concatenate([corner_2RK, sides_2RK])
    box_R4 = tried_4RK[:, np.arange(len(first_R)), first_R].T.astype(np.int64)
    box_R4[~fits_RK.any(axis=1)] = _central_box(source_size, spec.crop_ratio)
    return box_R4


def _central_box(source_size: int, crop_ratio: tuple[float, float]) -> tuple[int, int, int, int]:
    """Returns the largest central crop with an allowed aspect ratio: top, left, height, width."""
    narrowest, widest = crop_ratio
    height = round(source_size / narrowest) if narrowest > 1 else source_size
    width = round(source_size * widest) if widest < 1 else source_size
    return (source_size - height) // 2, (source_size - width) // 2, height, width


@torch.no_grad()
def make_views(images: Tensor, parameters: ViewParameters, spec: ViewsSpec) -> Tensor:
    """Returns augmented, normalised views, float32 [B * V, 3, size, size] in channels_last.

    images is uint8 [B, S, S, 3]; row b * V + v of the parameters gives view v of item b.
    """
    # Rows are processed in the jitter's order; `normalise_` restores the order of the parameters.
    turns = jitter_turns(parameters.order_R4, parameters.factor_R4)
    sorted_ = parameters.rows(turns.order_R)
    with torch.autocast(images.device.type, enabled=False):
        x_RCWH = crop(images, parameters.box_R4, parameters.flip_R, spec.size, turns.order_R)
        jitter_(x_RCWH, sorted_.order_R4, sorted_.factor_R4, turns)
        apply_(x_RCWH, sorted_.grayscale_R, grayscale)
        apply_(x_RCWH, sorted_.blur_R, blur)
        return normalise_(x_RCWH.mT, spec.mean, spec.std, turns.order_R)


@torch.no_grad()
def evaluation_views(images: Tensor, spec: ViewsSpec) -> Tensor:
    """Returns images resized with antialiasing and normalised, float32 [B, 3, size, size].

    images is uint8 [B, S, S, 3]; the result is in channels_last.
    """
    with torch.autocast(images.device.type, enabled=False):
        return normalise_(resize(images, spec.size), spec.mean, spec.std)
