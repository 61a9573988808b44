"""Tests of the checksums of files that are written once."""

from pathlib import Path

import pytest

from mtcon_ray.data.checksums import find_change, write_checksums

DATA = bytes(range(40))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder with two files and their checksums."""
    (tmp_path / "large").write_bytes(DATA)
    (tmp_path / "empty").touch()
    (tmp_path / ".unfinished").touch()
    write_checksums(tmp_path)
    (tmp_path / ".unfinished").unlink()
    assert find_change(tmp_path) is None
    return tmp_path


CHANGES = [
    ("large", b"\1" + DATA[1:], "large has changed"),
    ("large", None, "large cannot be read (No such file or directory)"),
    ("checksums.json", b"", "checksums.json is damaged"),
    ("checksums.json", b"[]", "checksums.json is damaged"),
    ("checksums.json", b'{"large": 3}', "large has changed"),
]


@pytest.mark.parametrize(("name", "data", "told"), CHANGES)
def test_a_change_is_named(folder: Path, name: str, data: bytes | None, told: str) -> None:
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    assert told in str(find_change(folder))


def test_a_folder_without_checksums_is_taken_as_it_is(folder: Path) -> None:
    (folder / "large").write_bytes(b"")
    (folder / "checksums.json").unlink()
    assert find_change(folder) is None
