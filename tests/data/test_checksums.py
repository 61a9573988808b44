"""Tests of the checksums of files that are written once."""

import json
from pathlib import Path

import pytest

from mtcon_ray.data import checksums
from mtcon_ray.data.checksums import find_change, write_checksums

LENGTH = 40  # two blocks and a half


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with two files in blocks of 16 bytes, and their checksums."""
    monkeypatch.setattr(checksums, "BLOCK_BYTES", 16)
    (tmp_path / "large").write_bytes(bytes(range(LENGTH)))
    (tmp_path / "empty").touch()
    (tmp_path / ".checksums.json.partial").touch()
    write_checksums(tmp_path)
    return tmp_path


def test_unchanged_files_have_no_change(folder: Path) -> None:
    assert find_change(folder) is None
    recorded = json.loads((folder / "checksums.json").read_text())
    assert {name: len(blocks) for name, blocks in recorded["crc32"].items()} == {
        "large": 3,
        "empty": 0,
    }


@pytest.mark.parametrize("place", [0, 15, 16, LENGTH - 1])
def test_one_changed_bit_is_found_in_its_block(folder: Path, place: int) -> None:
    assert find_change(folder) is None, "so that the check is not remembered from here"
    data = bytearray(range(LENGTH))
    data[place] ^= 128
    (folder / "large").write_bytes(data)
    assert find_change(folder) == "large has changed in 1 of 3 blocks"


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("large", bytes(range(LENGTH))[:32], "large has changed in 1 of 3 blocks"),
        ("large", bytes(range(LENGTH)) + b"x", "large has changed in 1 of 3 blocks"),
        ("large", bytes(LENGTH), "large has changed in 3 of 3 blocks"),
        ("large", None, "large cannot be read (No such file or directory)"),
        ("empty", b"x", "empty has changed in 1 of 0 blocks"),
        ("checksums.json", b"", "checksums.json is damaged"),
        ("checksums.json", b"[]", "checksums.json is damaged"),
        ("checksums.json", b'{"crc32": {"large": 3}, "block_bytes": 16}', "is damaged"),
        ("checksums.json", b'{"crc32": {"large": [3]}, "block_bytes": 0}', "is damaged"),
        ("checksums.json", b'{"crc32": {"large": [3]}, "block_bytes": "x"}', "is damaged"),
    ],
)
def test_other_changes_are_named(folder: Path, name: str, data: bytes | None, told: str) -> None:
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    change = find_change(folder)
    assert change is not None
    assert told in change


def test_a_folder_without_checksums_is_taken_as_it_is(folder: Path) -> None:
    (folder / "checksums.json").unlink()
    assert find_change(folder) is None


def test_files_are_read_once_per_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_change(folder) is None
    monkeypatch.setattr(checksums, "_blocks", lambda path, size: pytest.fail("read again"))
    assert find_change(folder) is None
