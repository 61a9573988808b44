"""Decoding of JPEG files of 500 x 375 pixels to the stored squares, in images per second and core.

The peers are Pillow's and torchvision's ways of a data set in Python. All read from memory, and all
squash the image. Only ours turns photographs as their EXIF data say, finds damage that Pillow
tolerates, and reads colour spaces other than RGB.
"""

import io
import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import resize

from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from benchmarks.views import drawn_photographs
from mtcon_ray.data.decoding import decode_image

WIDTH, HEIGHT = 500, 375
SIZES = (64, 112, 224)
CLOSE = 2.0  # levels of 255, in the mean
HEADER = ("JPEG of 500 x 375 px", "images per second", "ours is faster by")


def by_pillow(content: bytes, size: int) -> np.ndarray:
    """Decodes as a script does with Pillow, to uint8 [S, S, 3]."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def by_torchvision(content: bytes, size: int) -> np.ndarray:
    """Decodes as a script does with torchvision, to uint8 [S, S, 3]."""
    data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    # torchvision 0.29 announces the removal of its decoders.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        whole = decode_jpeg(data, ImageReadMode.RGB)
    image = resize(whole, [size, size], antialias=True)
    pixels: np.ndarray = image.permute(1, 2, 0).numpy()
    return pixels


def files(number: int) -> list[bytes]:
    """Returns JPEG files of drawn photographs."""
    found = []
    for pixels in drawn_photographs(number, WIDTH)[:, :HEIGHT]:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        found.append(buffer.getvalue())
    return found


WAYS: dict[str, Callable[[bytes, int], np.ndarray]] = {
    "mtcon-ray": decode_image,
    "Pillow": by_pillow,
    "torchvision": by_torchvision,
}


def measure(number: int = 64, rounds: int = 7) -> str:
    """Returns the table. Raises ValueError if a way gives another image than ours."""
    jpegs, rows = files(number), []

    def decode_all(way: Callable[[bytes, int], np.ndarray], size: int) -> None:
        for content in jpegs:
            way(content, size)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for size in SIZES:
        expected = decode_image(jpegs[0], size).astype(int)
        for name, way in WAYS.items():
            if (differs := np.abs(way(jpegs[0], size) - expected).mean()) > CLOSE:
                raise ValueError(f"{name} differs by {differs:.1f} levels")
        times = interleaved(
            {name: partial(decode_all, w, size) for name, w in WAYS.items()}, rounds
        )
        for name, each in times.items():
            text = "1" if name == "mtcon-ray" else str(ratio(each, times["mtcon-ray"]))
            rows.append((f"to {size} px: {name}", f"{number / each.median:,.0f}", text))
    torch.set_num_threads(before)
    return markdown(HEADER, rows)
