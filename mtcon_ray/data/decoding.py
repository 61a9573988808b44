"""Decoding of one image file to a square array of pixels."""

import re
import warnings
from contextlib import closing
from io import BytesIO
from typing import Literal

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin, UnidentifiedImageError

from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.data.image_names import FORMATS
from mtcon_ray.data.memory import Room

EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr"}
EIGHT_BIT |= {"HSV", "LAB"}
# Files that are often taken for images, by their first bytes, with what is to be done.
NOT_READ = {
    rb".{4}ftyp(hei[cfmsx]|hev[cmsx]|mif1|msf1)": "HEIC is not read; convert it to JPEG or PNG",
    rb"\xff\x0a|\0\0\0\x0cJXL ": "JPEG XL is not read; convert it to JPEG or PNG",
    rb".{128}DICM": "DICOM is not read; convert it to PNG with 8 bits a channel",
    rb"version https://git-lfs": "a pointer of Git LFS; `git lfs pull` fetches the image",
}
# Bytes of an ICC profile or of a text after decompression. Pillow's default of 1 MB refuses images
# of some scanners and editors. Without a bound a small file would fill the memory.
PngImagePlugin.MAX_TEXT_CHUNK = 2**24
# The memory of images that are decoded at a time: eight threads would otherwise take 10 GB for
# eight of the largest. A single image may take more.
DECODING_ROOM = Room(2**30)
# glibc returns blocks above 32 MiB at once. It keeps smaller blocks for the thread that freed them:
# with Pillow's blocks of 16 MiB eight threads kept 2 GB.
Image.core.set_block_size(2**26)  # type: ignore[attr-defined]
# Largest memory per pixel while an image is decoded and resized, bytes, as measured with Pillow 12:
# of opaque and of transparent images, and of formats whose libraries keep copies.
OPAQUE_BYTES, TRANSPARENT_BYTES = 8, 16
COPIED_BYTES = {"WEBP": 25, "AVIF": 20, "JPEG2000": 25}
# A progressive JPEG keeps its coefficients, also where it is decoded at a reduced scale.
PROGRESSIVE_BYTES = 6
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
    which Pillow would clip. Raises MemoryError if the memory is full.
    """
    if allow_truncated and data.startswith(JPEG_START):
        # As Pillow does with LOAD_TRUNCATED_IMAGES, which would hold for all threads and formats.
        data += JPEG_END
    try:
        with Image.open(BytesIO(data), formats=tuple(FORMATS)) as image:
            if image.mode not in EIGHT_BIT:
                raise ValueError(f"mode {image.mode} must be 8 bits a channel")
            num_bytes = PROGRESSIVE_BYTES * image.width * image.height * _is_progressive(image)
            if box is None:
                # JPEG only: decodes at a reduced scale that is at least twice the target size.
                image.draft("RGB", (2 * size, 2 * size))
            # Pillow's own `with` closes the file alone, and keeps the pixels.
            with DECODING_ROOM.taken(num_bytes + _memory(image)), closing(image):
                _set_upright(image)
                whole = _on_white(image)
                part = whole if box is None else _cut(whole, box)
                return np.asarray(make_square(part, size, resize))
    except MemoryError:  # of this process, not of the image: another time the image is decoded
        raise
    except Exception as error:  # Pillow's decoders raise almost anything on corrupt bytes
        raise UnreadableImageError(_reason(data, error)) from None


def _is_progressive(image: Image.Image) -> bool:
    return image.format == "JPEG" and "progressive" in image.info


def _memory(image: Image.Image) -> int:
    """Returns the memory that the decoding and resizing of an opened image takes, bytes."""
    plain = TRANSPARENT_BYTES if image.has_transparency_data else OPAQUE_BYTES
    return image.width * image.height * COPIED_BYTES.get(image.format or "", plain)


def _reason(data: bytes, error: Exception) -> str:
    """Returns why a file cannot be decoded."""
    for start, reason in NOT_READ.items():
        if re.match(start, data, re.DOTALL):
            return reason
    if isinstance(error, UnidentifiedImageError):
        return "not an image" if data else "empty file"
    return str(error) or type(error).__name__


def _set_upright(image: Image.Image) -> None:
    """Transposes the image in place by its EXIF orientation; ignores a damaged EXIF block."""
    image.load()  # outside of `try`: damaged pixels are an error
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except MemoryError:
        raise
    # Pillow's reader and writer of EXIF raise almost anything on damaged bytes.
    except Exception:
        pass


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
        # `convert` would copy such an image too, at 4 bytes a pixel.
        return image if image.mode == "RGB" else image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")
