"""Tests of the decoding of image files to upright squares."""

from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from threading import Semaphore
from time import sleep
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image, ImageOps
from PIL.PngImagePlugin import PngInfo

from mtcon_ray.data import decoding
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.spec.data.base import Resize

ORIENTATION = 0x0112


def picture(height: int = 24, width: int = 16) -> Image.Image:
    """Returns an image that is red above, blue at the lower left, green at the lower right."""
    pixels = np.zeros((height, width, 3), dtype=np.uint8)
    pixels[: height // 2, :, 0] = 255
    pixels[height // 2 :, : width // 2, 2] = 255
    pixels[height // 2 :, width // 2 :, 1] = 255
    return Image.fromarray(pixels)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", [1, 2, 3, 4, 5, 6, 7, 8])
def test_images_are_turned_as_exif_says(kind: str, orientation: int) -> None:
    """The result equals that of Pillow's `exif_transpose`, also for TIFF.

    Pillow transposes TIFF images itself when it loads them.
    """
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    upright = ImageOps.exif_transpose(Image.open(BytesIO(encoded(picture(), "PNG", exif=exif))))
    data = encoded(picture(), kind, exif=exif)  # last, because the AVIF writer changes `exif`
    found = decode_image(data, 32).astype(int)
    assert np.abs(found - decode_image(encoded(upright.convert("RGB")), 32)).mean() < 12
    if orientation == 6:
        assert found[:, 24:, 0].mean() > 200, "what was above lies to the right"


@pytest.mark.parametrize("place", ["Image.open", "ImageOps.exif_transpose"])
def test_full_memory_is_no_fault_of_the_image(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Bad images are remembered, and an image whose orientation is ignored is another one."""
    data = encoded(picture())
    monkeypatch.setattr(f"PIL.{place}", Mock(side_effect=MemoryError))
    with pytest.raises(MemoryError):
        decode_image(data, 32)


@pytest.mark.filterwarnings("ignore:(Possibly c|C)orrupt EXIF data:UserWarning")
@pytest.mark.parametrize(
    ("place", "value"), [(6, b"XX"), (10, b"\xff\xff\xff\xff"), (14, b"\xff\xff"), (16, b"\1\1\7")]
)
def test_a_damaged_exif_block_costs_no_image(place: int, value: bytes) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 1
    data = encoded(picture(), "JPEG", exif=exif)
    start = data.index(b"Exif\0\0") + place
    damaged = data[:start] + value + data[start + len(value) :]
    assert damaged != data
    assert (decode_image(damaged, 16) == decode_image(data, 16)).all()


def test_crop_keeps_the_middle_and_pad_keeps_all_on_white() -> None:
    pixels = np.full((10, 40, 3), 255, dtype=np.uint8)
    pixels[:, 15:25] = 7
    data = encoded(Image.fromarray(pixels))
    assert all((decode_image(data, size, "crop") == 7).all() for size in (10, 20))
    found = decode_image(encoded(Image.new("RGB", (40, 10), (1, 2, 3))), 16, "pad")
    assert (found[6:10] == [1, 2, 3]).all()
    assert (np.delete(found, range(6, 10), axis=0) == 255).all()
    # A square of this line's length would take 12 GB.
    line = encoded(Image.new("RGB", (65_000, 1), (9, 9, 9)))
    assert all((decode_image(line, 8, resize) == 9).any() for resize in ("crop", "pad"))


def test_a_large_profile_or_text_costs_no_image() -> None:
    """A text that would fill the memory is refused."""
    expected, text, huge = decode_image(encoded(picture()), 16), PngInfo(), PngInfo()
    text.add_text("Comment", 3_000_000 * "x", zip=True)
    huge.add_text("Comment", 20_000_000 * "x", zip=True)
    for options in ({"icc_profile": bytes(3_000_000)}, {"pnginfo": text}):
        assert (decode_image(encoded(picture(), **options), 16) == expected).all()
    with pytest.raises(UnreadableImageError, match="too large"):
        decode_image(encoded(picture(), pnginfo=huge), 16)


def test_lab_images_are_converted() -> None:
    grey = Image.new("LAB", (8, 8), (128, 128, 128))
    assert np.abs(decode_image(encoded(grey, "TIFF"), 8).astype(int) - 119).max() < 4


def test_transparent_pixels_are_white_and_16_bits_are_refused() -> None:
    """Pillow would silently clip 16 bits to white."""
    assert (decode_image(encoded(Image.new("RGBA", (8, 8), (10, 20, 30, 0))), 8) == 255).all()
    deep = encoded(Image.fromarray(np.full((8, 8), 300, dtype=np.uint16)))
    with pytest.raises(UnreadableImageError, match="8 bits a channel"):
        decode_image(deep, 8)


def test_the_memory_of_images_decoded_together_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for 8 million pixels two PNGs of 3 million are decoded at a time.

    JPEGs are decoded together, because they are decoded at a reduced scale.
    """
    monkeypatch.setattr(decoding, "_ROOM", Semaphore(8))
    running: list[str] = []
    counts: list[int] = []

    def make_square(whole: Image.Image, size: int, resize: Resize) -> Image.Image:
        running.append(resize)
        counts.append(len(running))
        sleep(0.2)
        running.pop()
        return whole.resize((size, size))

    monkeypatch.setattr(decoding, "make_square", make_square)
    for kind, expected in (("PNG", 2), ("JPEG", 4)):
        counts.clear()
        data = encoded(Image.new("L", (2000, 1500)), kind)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(decode_image, [data] * 4, [8] * 4))
        assert max(counts) == expected
