"""Tests of the image store's copy on a node's disk: made once, atomic, and optional."""

import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.image_cache import local_copy
from mtcon_ray.data.sources import SOURCES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a folder as `open_image_cache` writes it, with 10 kB of images."""
    folder = tmp_path / "root" / "store" / "abc"
    folder.mkdir(parents=True)
    (folder / "images.npy").write_bytes(b"x" * 10_000)
    (folder / "meta.json").write_text("{}")
    return folder


def test_images_are_read_from_the_copy(tmp_path: Path) -> None:
    """The memory map is that of the copy; images and fingerprint are those of the root."""
    spec = SOURCES["synthetic"].Spec.model_validate({"num_items": 60})
    root, near = tmp_path / "store", tmp_path / "node"
    plain = open_dataset(spec, view_size=16, store=root)
    copied = open_dataset(spec, view_size=16, store=root, node_store=near)
    assert isinstance(copied.images, np.memmap)
    assert near in Path(str(copied.images.filename)).parents
    assert (copied.images == plain.images).all()
    assert copied.fingerprint == plain.fingerprint
    assert near.stat().st_mode & 0o777 == 0o700


def test_a_copy_that_was_killed_is_made_anew(folder: Path, tmp_path: Path) -> None:
    half = tmp_path / "node" / "abc.building"
    half.mkdir(parents=True)
    (half / "images.npy").write_bytes(b"x" * 10)
    near = local_copy(folder, tmp_path / "node")
    assert (near / "images.npy").stat().st_size == 10_000
    assert not half.exists()


@pytest.mark.parametrize("why", ["no room", "not writable", "a file", "open to all", "another's"])
def test_a_node_without_a_copy_reads_the_root(
    why: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A warning names the reason, and no partial copy remains."""
    place = tmp_path / "node"
    if why == "a file":
        place.write_text("")
    elif why in ("open to all", "another's"):
        plant = place / "abc"
        plant.mkdir(parents=True)
        (plant / "images.npy").write_bytes(b"theirs")
        if why == "open to all":
            place.chmod(0o777)
        else:
            me = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: me + 1)
    elif why == "no room":
        usage = shutil.disk_usage(tmp_path)._replace(free=10_001)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    else:
        place = Path("/proc/mtcon")
    with caplog.at_level(logging.WARNING):
        assert local_copy(folder, place) == folder
    assert "storage.node_store: " in caplog.text
    planted = why in ("open to all", "another's")
    assert (place / "abc").exists() == planted
    assert not (place / "abc.building").exists()


def test_a_link_is_followed_once(folder: Path, tmp_path: Path) -> None:
    """The returned path is resolved, so that a link changed later has no effect."""
    (tmp_path / "disk").mkdir(mode=0o700)
    (tmp_path / "node").symlink_to(tmp_path / "disk")
    assert local_copy(folder, tmp_path / "node") == tmp_path / "disk" / "abc"
