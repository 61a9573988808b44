"""Tests of image files in tars."""

import gzip
import shutil
import tarfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from unicodedata import normalize

import pytest

from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import ImageFiles, UnreadableImageError
from mtcon_ray.errors import ResourceError


def packed(folder: Path, members: dict[str, bytes | str]) -> ImageFiles:
    """Returns a tar of files with these contents, and of hard links to these names."""
    with tarfile.open(folder / "images.tar", "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if isinstance(content, str):
                member.type, member.linkname, content = tarfile.LNKTYPE, content, b""
            member.size = len(content)
            tar.addfile(member, BytesIO(content))
    return open_files(folder / "images.tar")


def test_hard_links_are_followed_to_members_before_them(tmp_path: Path) -> None:
    """GNU tar writes the second name of a file as a hard link to the first."""
    links = {"b": "./a/1", "c": "b", "out": "/etc/passwd", "early": "late"}
    files = packed(tmp_path, {"./a/1": b"one", **links, "late": b"late"})
    assert [files.read(name) for name in ("b", "c")] == [b"one", b"one"]
    assert files.find_absent(["b", "out", "early"]) == [1, 2]


def test_names_may_have_another_unicode_form(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "\u00e9.png") for form in ("NFC", "NFD"))
    for there, other in ((composed, decomposed), (decomposed, composed)):
        files = packed(tmp_path, {there: b"one"})
        assert (files.exists(other), files.read(other)) == (True, b"one")
    files = packed(tmp_path, {composed: b"one", decomposed: b"two"})
    assert (files.read(composed), files.read(decomposed)) == (b"one", b"two")


def test_a_huge_member_is_not_read(tmp_path: Path) -> None:
    """A sparse tar has members of any size on a small disk."""
    member = tarfile.TarInfo("a.png")
    member.size = 2**34
    with (tmp_path / "images.tar").open("wb") as file:
        file.write(member.tobuf())
        file.truncate(2**34 + 2**20)
    with pytest.raises(UnreadableImageError, match=r"17,179,869,184 bytes, too many"):
        open_files(tmp_path / "images.tar").read("a.png")


def test_unpacking_leaves_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "images.tar.gz", "wb") as file:
        file.write(bytes(2**20))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    with pytest.raises(ResourceError, match=r"cannot unzip .*images\.tar\.gz"):
        open_files(tmp_path / "images.tar.gz").exists("a.png")
