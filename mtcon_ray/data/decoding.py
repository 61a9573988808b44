"""Decoding of one image file to a square array of pixels."""

import warnings
from contextlib import suppress
from io import BytesIO
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mtcon_ray.data.image_files import UnreadableImageError

EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV"}
# Only formats that photographs come in. Pillow's EPS reader would run Ghostscript on the file.
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
# A decompression bomb is a small file whose decoded image fills the memory. Pillow warns above
# 89 million pixels; as an error, the warning makes `decode_image` refuse the file.
warnings.simplefilter("error", Image.DecompressionBombWarning)
# Pillow warns of odd files that it can read. A damaged EXIF block loses at most the orientation.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
# Ways to make an image square; `decode_image` describes them.
Resize = Literal["squash", "crop", "pad"]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom edge of a part of an upright image, pixels."""
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"


def decode_image(
    data: bytes,
    size: int,
    resize: Resize = "squash",
    *,
    box: Box | None = None,
    allow_truncated: bool = False,
) -> np.ndarray:
    """Returns one image, uint8 [size, size, 3], upright, antialiased, transparency as white.

    `squash` scales both sides to `size`. `crop` takes the central square of the shorter side's
    length and scales it. `pad` scales the longer side to `size` and fills the rest with white.
    The part of the image outside of `box` is cut off before. With `allow_truncated` the part that
    is missing at the end of a JPEG is grey.

    Raises UnreadableImageError if `data` cannot be decoded, or has more than 8 bits per channel,
    which Pillow would clip.
    """
    if allow_truncated and data.startswith(JPEG_START):
        # As Pillow does with LOAD_TRUNCATED_IMAGES, which would hold for all threads and formats.
        data += JPEG_END
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.mode not in EIGHT_BIT:
                raise ValueError(f"mode {image.mode} must be 8 bits a channel")
            if box is None:
                # JPEG only: decodes at a reduced scale that is at least twice the target size.
                image.draft("RGB", (2 * size, 2 * size))
            _set_upright(image)
            whole = _on_white(image)
            return np.asarray(make_square(whole if box is None else _cut(whole, box), size, resize))
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image" if data else "empty file") from None
    except Exception as error:  # Pillow's decoders raise almost anything on corrupt bytes
        raise UnreadableImageError(str(error) or type(error).__name__) from None


def _set_upright(image: Image.Image) -> None:
    """Transposes the image in place by its EXIF orientation; ignores a damaged EXIF block."""
    image.load()  # outside of `suppress`: damaged pixels are an error
    # Pillow's reader and writer of EXIF raise almost anything on damaged bytes.
    with suppress(Exception):
        ImageOps.exif_transpose(image, in_place=True)


def _cut(image: Image.Image, box: Box) -> Image.Image:
    left, top, right, bottom = map(round, box)
    return image.crop(
        (max(0, left), max(0, top), min(right, image.width), min(bottom, image.height))
    )


def make_square(whole: Image.Image, size: int, resize: Resize) -> Image.Image:
    """Returns an RGB image resized to [size, size], as `decode_image` describes.

    Change `export.model.StoredResize` with it.
    """
    width = height = size
    if resize == "crop":
        side = min(whole.size)
        left, top = (whole.width - side) // 2, (whole.height - side) // 2
        whole = whole.crop((left, top, left + side, top + side))
    elif resize == "pad":
        # Scale first, pad afterwards: padding a 1 x 65,000 image first needs 65,000 x 65,000.
        longest = max(whole.size)
        width, height = (
            max(1, (2 * size * side + longest) // (2 * longest)) for side in whole.size
        )
    # One axis per call. In one call Pillow chooses the order of the axes, which changes rounding
    # to 8 bits, and the exported model must give the same pixels.
    wide = whole.resize((width, whole.height), Image.Resampling.BILINEAR)
    scaled = wide.resize((width, height), Image.Resampling.BILINEAR)
    if scaled.size == (size, size):
        return scaled
    square = Image.new("RGB", (size, size), "white")
    square.paste(scaled, ((size - width) // 2, (size - height) // 2))
    return square


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
