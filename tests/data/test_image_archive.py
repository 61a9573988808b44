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
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.errors import ResourceError


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", hard_link: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    if hard_link:
        member.type, member.linkname = tarfile.LNKTYPE, hard_link
    tar.addfile(member, BytesIO(content))


def test_hard_links_are_followed_to_members_before_them(tmp_path: Path) -> None:
    """GNU tar writes the second name of a file as a hard link to the first."""
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        add(tar, "./a/1.png", b"one")
        add(tar, "b.png", hard_link="./a/1.png")
        add(tar, "c.png", hard_link="b.png")
        add(tar, "out.png", hard_link="/etc/passwd")
        add(tar, "early.png", hard_link="late.png")
        add(tar, "late.png", b"late")
    files = open_files(tmp_path / "images.tar")
    assert [files.read(name) for name in ("b.png", "c.png")] == [b"one", b"one"]
    assert files.find_absent(["b.png", "out.png", "early.png"]) == [1, 2]


def test_names_may_have_another_unicode_form(tmp_path: Path) -> None:
    composed, decomposed = (normalize(form, "\u00e9.png") for form in ("NFC", "NFD"))
    for there, other in ((composed, decomposed), (decomposed, composed)):
        with tarfile.open(tmp_path / "images.tar", "w") as tar:
            add(tar, there, b"one")
        files = open_files(tmp_path / "images.tar")
        assert (files.exists(other), files.read(other)) == (True, b"one")
    with tarfile.open(tmp_path / "images.tar", "w") as tar:
        add(tar, composed, b"one")
        add(tar, decomposed, b"two")
    files = open_files(tmp_path / "images.tar")
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
