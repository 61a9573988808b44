"""Tests of opening files: a pipe is not waited for, and a device is not read."""

import os
from pathlib import Path

import pytest

from mtcon_ray.base.regular_file import open_regular


def test_a_file_and_a_link_to_it_are_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("a")
    for name in ("a", "link"):
        with open_regular(tmp_path / name, most=3) as file:
            assert file.read() == b"abc"


def test_other_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = os.listdir("/proc/self/fd")
    (tmp_path / "large").write_bytes(b"abcd")
    for path, message in (
        (tmp_path / "pipe", "it is not a regular file"),
        (Path("/dev/zero"), "it is not a regular file"),
        (tmp_path, "it is not a regular file"),
        (tmp_path / "large", "it has 4 bytes, and at most 3 are read"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(OSError, match=message) as caught:
            open_regular(path, most=3)
        assert caught.value.filename is not None
    assert os.listdir("/proc/self/fd") == before, "a descriptor is left"
