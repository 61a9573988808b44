"""Damage of the image cache: noticed in every file, named, and never read as images."""

import io
import shutil
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data.image_cache import PROGRESS, open_image_cache
from mtcon_ray.errors import StorageError
from tests.data.test_image_cache import CountingSource


def the_folder(store: Path) -> Path:
    (folder,) = [p for p in store.iterdir() if p.is_dir() and p.name != "keys"]
    return folder


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("images.npy", b"", "images.npy is not an array"),
        ("images.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': ((", "images.npy is not an array"),
        ("images.npy", b"PK\x03\x04", "images.npy is not an array"),
        ("images.npy", saved(np.zeros((3, 8, 8, 3), np.uint8))[:-1], "images.npy is not an array"),
        ("images.npy", saved(np.zeros((2, 8, 8, 3), np.uint8)), r"uint8 \(2, 8, 8, 3\)"),
        ("images.npy", saved(np.zeros((3, 8, 8, 3), np.int8)), "images are int8"),
        ("images.npy", None, "No such file"),
        ("bad.json", b"[]", "bad.json holds a list instead of an object"),
        ("bad.json", b'{"3": "x"}', "bad.json has rows 3 to 3 of 3"),
        ("bad.json", b"\xff", "can't decode"),
        ("bad.json", b"", "Expecting value"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, data: bytes | None, why: str) -> None:
    """The error is not the user's fault, and names the folder to delete."""
    open_image_cache(CountingSource(), 3, 8, tmp_path, None)
    folder = the_folder(tmp_path)
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(StorageError, match=f"{folder} is damaged: .*{why}.*; delete it"):
        open_image_cache(CountingSource(), 3, 8, tmp_path, None)
    shutil.rmtree(folder)
    assert len(open_image_cache(CountingSource(), 3, 8, tmp_path, None).images) == 3


def test_a_damaged_key_is_made_anew(tmp_path: Path) -> None:
    """Another key would name another cache and change the data's fingerprint."""
    source = CountingSource()
    source.stamp = "stamp"
    open_image_cache(source, 3, 8, tmp_path, None)
    for damage in (b"xontent", b"\xff\xff", b""):
        (tmp_path / "keys" / "stamp").write_bytes(damage)
        assert open_image_cache(source, 3, 8, tmp_path, None).content_key == "content"
        assert (tmp_path / "keys" / "stamp").read_text() == "content"
    assert source.decoded == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b"[64]", b"[999, {}]", b'["64", {}]'])
def test_decoding_whose_progress_is_damaged_begins_anew(tmp_path: Path, damage: bytes) -> None:
    open_image_cache(CountingSource(), 100, 8, tmp_path, None)
    building = the_folder(tmp_path).rename(the_folder(tmp_path).with_suffix(".building"))
    (building / PROGRESS).write_bytes(damage)
    source = CountingSource()
    assert len(open_image_cache(source, 100, 8, tmp_path, None).images) == 100
    assert len(source.decoded) == 100
