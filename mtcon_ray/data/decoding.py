"""Decoding of image files to square arrays of pixels."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from pathlib import Path
from threading import Lock, Semaphore
from typing import Any

import numpy as np
import PIL
from PIL import Image, ImageMode, ImageOps, PngImagePlugin, UnidentifiedImageError, features

from mtcon_ray.data.image_files import ImageFiles, ImageFolder, UnreadableImageError
from mtcon_ray.data.image_names import FORMATS
from mtcon_ray.spec.data.base import Resize
from mtcon_ray.version import __version__

# Bytes of an ICC profile or of a text after decompression. Pillow's default of 1 MB refuses images
# of some scanners and editors. Without a bound a small file would fill the memory.
PngImagePlugin.MAX_TEXT_CHUNK = 2**24
# Millions of pixels decoded at a time. A pixel takes 8 bytes in opaque images, 16 in transparent
# images, and up to 25 where the format's library keeps copies, as measured with Pillow 12. Without
# this bound eight threads with the largest images would take 10 GB. A single image may have more.
MILLIONS = 64
_ROOM, _TURN = Semaphore(MILLIONS), Lock()
# A decompression bomb is a small file with a decoded image too large for the memory. Pillow warns
# above 89 million pixels. Turned into an error, the warning makes `decode_image` refuse the file.
warnings.simplefilter("error", Image.DecompressionBombWarning)
# Pillow warns of odd but readable files. A damaged EXIF block loses at most the orientation.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
JPEG_START, JPEG_END = b"\xff\xd8", b"\xff\xd9"
# Other versions may make other pixels of the same file.
CODECS = ("libjpeg_turbo", "webp", "avif", "libtiff", "jpg_2000", "littlecms2")
VERSIONS = [__version__, PIL.__version__, *map(features.version, CODECS)]

Decoded = tuple[np.ndarray, dict[int, str]]
# `decode_files`, here or on another machine. The latter may raise DecoderLostError.
Decoder = Callable[[ImageFiles, Sequence[str], int, Resize, bool], Decoded]


class DecoderLostError(Exception):
    """A decoder on another machine does not answer, or sees other files."""


def decode_files(
    files: ImageFiles, names: Sequence[str], size: int, resize: Resize, allow_truncated: bool
) -> Decoded:
    """Returns images as `decode_image` does, uint8 [N, size, size, 3], and the reasons of failures.

    The reasons are by place in `names`. An image that cannot be read or decoded is black.
    """
    images, reasons = np.empty((len(names), size, size, 3), dtype=np.uint8), {}
    for place, name in enumerate(names):
        try:
            data = files.read(name)
            images[place] = decode_image(data, size, resize, allow_truncated=allow_truncated)
        except UnreadableImageError as error:
            images[place], reasons[place] = 0, str(error)
    return images, reasons


def stamp(files: ImageFiles, names: Sequence[str]) -> str:
    """Returns a text that differs between machines with other files or other versions."""
    return f"{VERSIONS} {files.signature(names)}"


def decode_there(root: str, names: Sequence[str], same: str, *how: Any) -> Decoded:
    """Calls `decode_files` for a folder. Raises DecoderLostError if its `stamp` is not `same`."""
    files = ImageFolder(Path(root))
    if stamp(files, names) != same:
        raise DecoderLostError
    return decode_files(files, names, *how)


def decode_image(
    data: bytes, size: int, resize: Resize = "squash", *, allow_truncated: bool = False
) -> np.ndarray:
    """Returns an image, uint8 [size, size, 3], upright, antialiased, transparency as white.

    `squash` scales both sides to `size`. `crop` takes the central square of the shorter side's
    length and scales it. `pad` scales the longer side to `size` and fills the rest with white.
    With `allow_truncated` the missing end of a JPEG is grey.

    Raises UnreadableImageError if `data` cannot be decoded, or has more than 8 bits per channel,
    which Pillow would clip. Raises MemoryError if the memory is full.
    """
    if allow_truncated and data.startswith(JPEG_START):
        # Like Pillow's LOAD_TRUNCATED_IMAGES, which would apply to all threads and formats.
        data += JPEG_END
    try:
        with Image.open(BytesIO(data), formats=tuple(FORMATS)) as image:
            whole_size = image.size
            # JPEG only: decodes at a reduced scale, at least twice the target size.
            image.draft("RGB", (2 * size, 2 * size))
            # A progressive JPEG keeps its coefficients, even if it is decoded at a reduced scale.
            width, height = whole_size if "progressive" in image.info else image.size
            # Pillow's own `with` closes the file alone, and keeps the pixels.
            with _room(width * height), closing(image):
                return np.asarray(make_square(plain_rgb(image, in_place=True), size, resize))
    except MemoryError:  # a lack of memory says nothing about the image
        raise
    except UnidentifiedImageError:
        reason = "not an image of a format that is read" if data else "empty file"
        raise UnreadableImageError(reason) from None
    except Exception as error:  # Pillow's decoders raise almost anything on corrupt bytes
        raise UnreadableImageError(str(error) or type(error).__name__) from None


@contextmanager
def _room(num_pixels: int) -> Iterator[None]:
    """Waits until an image with this number of pixels may be decoded."""
    millions = min(1 + num_pixels // 10**6, MILLIONS)
    # A single thread waits at a time: otherwise small images could always overtake a large one.
    with _TURN:
        for _ in range(millions):
            _ROOM.acquire()
    try:
        yield
    finally:
        _ROOM.release(millions)


def plain_rgb(image: Image.Image, *, in_place: bool = False) -> Image.Image:
    """Returns an image as RGB, upright by its EXIF orientation, with transparency as white.

    `in_place` saves a copy and changes the image. Ignores a damaged EXIF block. Raises ValueError
    if a channel has more than 8 bits, and Pillow's errors for damaged pixels.
    """
    if ImageMode.getmode(image.mode).typestr not in ("|b1", "|u1"):
        raise ValueError(f"mode {image.mode} must be 8 bits a channel")
    image.load()
    return _on_white(_upright(image, in_place))


def _upright(image: Image.Image, in_place: bool) -> Image.Image:
    try:
        # Pillow declares `in_place` for literal values alone.
        return ImageOps.exif_transpose(image, in_place=in_place) or image  # type: ignore[call-overload]
    except MemoryError:  # it says nothing about the block
        raise
    except Exception:  # Pillow's reader and writer of EXIF raise almost anything on damaged bytes
        return image


def make_square(whole: Image.Image, size: int, resize: Resize) -> Image.Image:
    """Returns an RGB image resized to [size, size], as `decode_image` describes.

    If you change it, also change `export.model.StoredResize`.
    """
    width = height = size
    if resize == "crop":
        side = min(whole.size)
        left, top = (whole.width - side) // 2, (whole.height - side) // 2
        whole = whole.crop((left, top, left + side, top + side))
    elif resize == "pad":
        # Scale first, pad afterwards: padding a 1 x 65,000 image first needs 65,000 x 65,000.
        longer = max(whole.size)
        width, height = (max(1, (2 * size * side + longer) // (2 * longer)) for side in whole.size)
    # An axis per call. In a joint call Pillow chooses the order of the axes, which changes rounding
    # to 8 bits. The exported model must give the same pixels.
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
