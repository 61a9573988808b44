"""Tests of image files in folders: names, sizes and digests."""

import os
import re
from pathlib import Path
from unicodedata import normalize

import pytest

from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import ImageFolder, UnreadableImageError
from mtcon_ray.errors import DataError
from tests.data.archives import pack


@pytest.mark.parametrize("packed", [False, True])
def test_names_that_are_not_utf_8_are_refused(tmp_path: Path, packed: bool) -> None:
    """Neither a spec nor a report nor the hash of the names could hold them."""
    folder, name = tmp_path / "images", b"B\xf8rn.jpg"
    (folder / "a").mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/a/" + name)).touch()
    pack(folder, tmp_path / "images.tar")
    files = open_files(tmp_path / "images.tar" if packed else folder)
    with pytest.raises(DataError, match=f"must have names in UTF-8.*{re.escape(str(name)[2:])}"):
        [*files.names()]


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    """The file of 20 GB takes no space on the disk, and would fill the memory."""
    with (tmp_path / "a.png").open("wb") as file:
        file.truncate(20 * 10**9)
    with pytest.raises(UnreadableImageError, match=r"20,000,000,000 bytes, .* 536,870,912"):
        ImageFolder(tmp_path).read("a.png")


def test_every_name_of_a_file_has_one_spelling(tmp_path: Path) -> None:
    """Names that lead outside, or to no file of another Unicode form, stay as they are."""
    folder = tmp_path / "images"
    (folder / "a").mkdir(parents=True)
    (folder / "link").symlink_to("a")
    Path(os.fsdecode(os.fsencode(folder) + b"/B\xf8rn.jpg")).touch()  # no table names it
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "link").symlink_to(folder)
    (elsewhere / "3.png").symlink_to(folder / "3.png")
    composed, decomposed = (normalize(form, "caf\u00e9") for form in ("NFC", "NFD"))
    (folder / decomposed).mkdir()
    inside = [f"{folder}/{decomposed}.png" for folder in ("a", decomposed)]
    for name in ("1.png", *inside, f"{composed}.jpg", f"{decomposed}.jpg"):
        (folder / name).touch()
    same = {
        "1.png": ["1.png", "./1.png", ".//1.png", "a/../1.png", "link/../1.png", "a/..//./1.png"],
        "a/1.png": ["a/1.png", "a//1.png", "a/./1.png", "a/../a/1.png", "../images/a/1.png"],
        "2.png": [f"{folder}/2.png", f"{folder}//2.png", f"{folder}/../images/2.png"],
        "3.png": [f"{folder}/a/../3.png", f"{elsewhere}/link/3.png", f"{elsewhere}/3.png"],
        f"{decomposed}/{decomposed}.png": [f"./{f}/{f}.png" for f in (composed, decomposed)],
        f"link/{decomposed}.png": [f"link/{composed}.png"],
        f"{composed}.jpg": [f"{composed}.jpg"],
        f"{decomposed}.jpg": [f"{decomposed}.jpg"],
        f"{composed}.gif": [f"{composed}.gif"],
        "..a/.b": ["..a/.b"],
        "../1.png": ["../1.png"],
        "a/../../1.png": ["a/../../1.png"],
        "/1.png": ["/1.png"],
    }
    for expected, names in same.items():
        assert ImageFolder(folder).relative(names) == [expected] * len(names)
