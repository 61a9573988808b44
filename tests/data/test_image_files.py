"""Tests of the digest of image files."""

import hashlib
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from mtcon_ray.data.image_files import ImageFolder, open_files
from mtcon_ray.errors import DataError


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


@pytest.mark.parametrize("packed", [False, True])
def test_names_that_are_not_utf_8_are_refused(tmp_path: Path, packed: bool) -> None:
    """Neither a spec nor a report nor the hash of the names could hold them."""
    folder = tmp_path / "images"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/B\xf8rn.jpg")).touch()
    if packed:
        with tarfile.open(tmp_path / "images.tar", "w") as tar:
            tar.add(folder, "images")
    files = open_files(tmp_path / "images.tar" if packed else folder)
    with pytest.raises(DataError, match=r"must have names in UTF-8, got b'.*B\\xf8rn.jpg'"):
        [*files.names()]
