"""Tests of the digest of image files."""

import hashlib
import tracemalloc
from pathlib import Path

from mtcon_ray.data.image_files import ImageFolder


def test_a_large_file_is_hashed_in_pieces(tmp_path: Path) -> None:
    """The digest is that of the whole content, in less memory than the content has."""
    size = 2**24
    with (tmp_path / "images.bin").open("wb") as file:
        file.truncate(size)
    tracemalloc.start()
    digest = ImageFolder(tmp_path).digest(["images.bin"])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    content = hashlib.sha256(bytes(size)).hexdigest()
    assert digest == hashlib.sha256(f"images.bin\0{content}\0".encode()).hexdigest()
    assert peak < size / 4
