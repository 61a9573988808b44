"""Small binary files in the formats of STL-10 and CIFAR, and what all of them must do."""

from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.binary import BinarySource
from tests.data.sources.downloads import source_of

# The colour of the corner at the top right in `picture`.
CORNER = (250, 120, 10)


def picture(side: int, level: int, by_columns: bool) -> bytes:
    """Returns an image's planes: of one grey level, but CORNER in the last pixel of the top row."""
    planes = bytearray([level]) * (3 * side * side)
    row, column = 0, side - 1
    place = column * side + row if by_columns else row * side + column
    for plane, value in enumerate(CORNER):
        planes[plane * side * side + place] = value
    return bytes(planes)


def expected(side: int, level: int) -> np.ndarray:
    """Returns the pixels of `picture`, uint8 [side, side, 3]."""
    pixels = np.full((side, side, 3), level, dtype=np.uint8)
    pixels[0, side - 1] = CORNER
    return pixels


def shrink(monkeypatch: pytest.MonkeyPatch, kind: str, **counts: int) -> None:
    """Sets the published number of images of each file, by its name without `.bin`."""
    sizes = {f"{name}.bin": count for name, count in counts.items()}
    monkeypatch.setattr(SOURCES[kind], "num_images", sizes)
    labelled = sum(count for name, count in counts.items() if not name.startswith("unlabeled"))
    monkeypatch.setattr(SOURCES[kind], "num_items", labelled)


def binary(kind: str, root: Path, **fields: object) -> BinarySource:
    """Returns the source of a kind of binary files at `root`."""
    source = source_of(kind, root, **fields)
    assert isinstance(source, BinarySource)
    return source
