"""Decoding of one image file to a square of pixels."""

import warnings
from io import BytesIO
from typing import Literal

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from mtcon_ray.data.image_files import UnreadableImageError

EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV"}
# Others are rare as photographs, and one of Pillow's readers starts a program (Ghostscript).
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
# A small file can hold an image that fills the memory: above 89 million pixels it is refused.
warnings.simplefilter("error", Image.DecompressionBombWarning)
# A damaged EXIF block costs the image its orientation at most; each would warn anew.
warnings.filterwarnings("ignore", "(Possibly c|C)orrupt EXIF data", UserWarning)
# How an image becomes square.
Resize = Literal["squash", "crop", "pad"]
# By the value of EXIF's orientation: the turn that sets the image upright.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_image(data: bytes, size: int, resize: Resize = "squash") -> np.ndarray:
    """One image, uint8 [size, size, 3], upright, antialiased, transparency on white.

    `squash` scales both sides to `size`, `crop` the central square of the shorter side; `pad`
    scales the longer side and leaves white beside the image. Raises UnreadableImageError, also
    for more than 8 bits a channel, which Pillow would clip.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.mode not in EIGHT_BIT:
                raise UnreadableImageError(f"mode {image.mode} must be 8 bits a channel")
            image.draft("RGB", (2 * size, 2 * size))
            return np.asarray(_square(_on_white(_upright(image)), size, resize))
    except UnreadableImageError:
        raise
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image" if data else "empty file") from None
    except Exception as error:  # Pillow's decoders raise almost anything on corrupt bytes
        raise UnreadableImageError(str(error) or type(error).__name__) from None


def _upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF orientation says; a damaged EXIF block says nothing."""
    image.load()  # first, because TIFF images are turned by Pillow itself when they are loaded
    try:
        turn = UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # Pillow's reader of EXIF raises almost anything on damaged bytes
        return image
    return image if turn is None else image.transpose(turn)


def _square(whole: Image.Image, size: int, resize: Resize) -> Image.Image:
    """`export.model.StoredResize` computes the same: change both."""
    width = height = size
    if resize == "crop":
        side = min(whole.size)
        left, top = (whole.width - side) // 2, (whole.height - side) // 2
        whole = whole.crop((left, top, left + side, top + side))
    elif resize == "pad":
        # Scaled before it is padded: a square of an image of 1 by 65,000 would fill the memory.
        longest = max(whole.size)
        width, height = (
            max(1, (2 * size * side + longest) // (2 * longest)) for side in whole.size
        )
    # In two calls: which way comes first, and so some rounding, is Pillow's to change.
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
