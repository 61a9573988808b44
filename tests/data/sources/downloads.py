"""Small trees in the formats of published downloads."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.download import DownloadSource
from tests.data.test_decoding import encoded


def source_of(kind: str, root: Path, **fields: Any) -> DownloadSource:
    """Returns the source of a kind of data whose download lies at `root`."""
    spec = SOURCES[kind].Spec.model_validate({"kind": kind, "root": str(root)} | fields)
    source = SOURCES[kind](spec)
    assert isinstance(source, DownloadSource)
    return source


def save_image(path: Path, level: int, size: tuple[int, int] = (12, 9)) -> None:
    """Writes an image of one grey level; its format follows the file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size[1], size[0], 3), level, dtype=np.uint8)).save(path)


def png(level: int) -> bytes:
    """Returns the file of an image of one grey level."""
    return encoded(Image.fromarray(np.full((9, 12, 3), level, dtype=np.uint8)))


def write_text(path: Path, *lines: str, end: str = "\n") -> None:
    """Writes lines with these line ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())


def labels_of(kind: str, root: Path, **fields: Any) -> LabelTable:
    """Returns the labels of a download at `root`."""
    return source_of(kind, root, **fields).read_labels()


def named(table: LabelTable, column: str) -> list[str]:
    """Returns the class name of each item, "" where missing."""
    return ["" if code < 0 else table.classes[column][code] for code in table.labels[column]]


def replace_text(path: Path, old: str, new: str) -> None:
    """Replaces the first occurrence of a text in a file; keeps line ends."""
    content = path.read_bytes()
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))
