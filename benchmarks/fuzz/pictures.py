"""Damaged images: other kinds, depths and sizes, and small files with a huge unpacked size."""

import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from benchmarks.fuzz.damage import damage_bytes, damage_file, flip

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "ICO", "TGA", "PCX")
MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F", "YCbCr", "LAB", "HSV")
TEXTS = (
    b"<svg xmlns='http://www.w3.org/2000/svg'><script>1</script></svg>",
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(x) (w) file closefile\n",
    b"P6\n99999999 99999999\n255\n", b"P6\n-1 5\n255\nxx", b"P1\n# x\n3 3\n1 0 1", b"not an image",
)  # fmt: skip


def png(width: int, height: int, *chunks: tuple[bytes, bytes]) -> bytes:
    """Returns a PNG with this width and height in its header, followed by these chunks."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", header), *chunks, (b"IEND", b"")]
    framed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def encoded(format: str, mode: str, width: int, height: int, rng: Random) -> bytes | None:
    """Returns an image of random pixels as a file, or None if the format lacks the mode."""
    pixels = np.frombuffer(rng.randbytes(width * height * 3), np.uint8)
    image = Image.fromarray(pixels.reshape(height, width, 3))
    try:
        # Pillow converts to most modes only from L and RGB.
        image = image.convert("L") if mode in ("I;16", "I", "F", "LA") else image
        file = BytesIO()
        image.convert(mode).save(file, format)
    except (OSError, ValueError, KeyError):
        return None
    return file.getvalue()


def _other(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Returns an image of another format or mode, sometimes damaged too."""
    format, mode = rng.choice(FORMATS), rng.choice(MODES)
    width, height = rng.choice(((24, 24), (1, 1), (1, 60_000), (30_000, 2), (3, 500)))
    made = encoded(format, mode, width, height, rng)
    if made is None:
        return damage_bytes(data, rng)
    told = f"{format} of mode {mode}, {width} x {height}"
    if rng.random() < 0.5:
        made, how = damage_bytes(made, rng)
        told += f", {how}"
    return made, told


def _bomb(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Returns a small file with a claimed or unpacked size far above its own."""
    zeros = zlib.compress(bytes(1 << 26), 9)  # 64 MiB
    side = rng.choice((9_000, 20_000, 2**31 - 1))
    ways = (
        (png(side, side, (b"IDAT", zlib.compress(bytes(1000)))), f"PNG header of {side} x {side}"),
        (png(0, 0, (b"IDAT", b"")), "PNG of no pixels"),
        (png(24, 24, (b"zTXt", b"k\0\0" + zeros), (b"IDAT", zeros)), "PNG with 64 MiB of text"),
        (
            png(24, 24, (b"iCCP", b"k\0\0" + zeros), (b"IDAT", zeros)),
            "PNG with a profile of 64 MiB",
        ),
        (png(24, 24, (b"IDAT", zeros)), "PNG of 64 MiB of pixels"),
        (b"P5\n9000 9000\n255\n" + bytes(81_000_000), "PGM of 81 million pixels"),
        (b"BM" + struct.pack("<IHHIIiiHH", 99, 0, 0, 54, 40, side, side, 1, 24) + bytes(30), "BMP"),
    )
    return rng.choice(ways)


def _exif(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Returns a JPEG with a damaged EXIF block."""
    image, file = Image.new("RGB", (24, 24), "red"), BytesIO()
    exif = Image.Exif()
    exif[0x0112] = rng.randrange(20)
    exif[0x010F] = "x" * 200
    block, how = damage_bytes(exif.tobytes(), rng)
    image.save(file, "JPEG", exif=block[:60_000])
    return file.getvalue(), f"JPEG with a damaged EXIF block: {how}"


def _text(data: bytes, rng: Random) -> tuple[bytes, str]:
    text = rng.choice(TEXTS)
    return text, f"is {text[:30]!r}"


WAYS: tuple[Callable[[bytes, Random], tuple[bytes, str]], ...] = (
    damage_bytes, damage_bytes, flip, _other, _other, _bomb, _exif, _text,
)  # fmt: skip


def damage_images(folder: Path, rng: Random, marker: Path) -> str:
    """Damages some images of the shop, often fewer than `data.max_bad_images` allows."""
    paths = sorted((folder / "shop" / "images").iterdir())
    chosen = rng.sample(paths, rng.choice((1, 2, 4, 20)))
    return "; ".join(damage_file(path, rng, rng.choice(WAYS)) for path in chosen)
