"""Tests of the image store: decoded once, atomic, and checked for disk space."""

import errno
import io
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from mtcon_ray.data import image_cache
from mtcon_ray.data.image_cache import PROGRESS, check_room, open_image_cache
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources import SOURCES, DataSource
from mtcon_ray.errors import ResourceError, StorageError


class CountingSource(DataSource):
    """Source whose image i has grey level i; it records decoded rows and fails at `bad` ones."""

    def __init__(self, bad: tuple[int, ...] = (), delay: float = 0) -> None:
        super().__init__(SOURCES["synthetic"].Spec.model_validate({}))
        self.bad, self.delay = bad, delay
        self.decoded: list[int] = []
        self.hashed = 0
        self.stamp: str | None = None

    def read_labels(self) -> LabelTable:
        raise AssertionError("the store reads no labels")

    def content_key(self) -> str:
        self.hashed += 1
        return "content"

    def signature(self) -> str | None:
        return self.stamp

    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        time.sleep(self.delay)
        self.decoded.extend(rows)
        images = np.tile(np.array(rows, np.uint8)[:, None, None, None], (1, size, size, 3))
        return images, {row: f"row {row + 2}: broken" for row in rows if row in self.bad}


def interrupt(source: DataSource, num_items: int, size: int, store: Path, after: int) -> None:
    """Opens the store, with an interrupt when so many images are decoded."""

    def stop(done: int, total: int) -> None:
        if done == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_image_cache(source, num_items, size, store, stop)


def free_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


def test_images_are_decoded_once_in_order_and_read_only(tmp_path: Path) -> None:
    """150 rows are decoded in three tasks; opening the store again decodes nothing."""
    source, seen = CountingSource(bad=(70, 2)), []
    stored = open_image_cache(source, 150, 8, tmp_path, lambda *counts: seen.append(counts))
    assert stored.images.shape == (150, 8, 8, 3)
    assert (stored.images[:, 3, 3, 1] == np.arange(150)).all()
    assert isinstance(stored.images, np.memmap)
    assert not stored.images.flags.writeable
    assert sorted(source.decoded) == list(range(150))
    assert (len(seen), seen[-1]) == (3, (150, 150))
    again = open_image_cache(source, 150, 8, tmp_path)
    assert (again.images == stored.images).all()
    assert list(again.bad.items()) == [(2, "row 4: broken"), (70, "row 72: broken")]
    assert len(source.decoded) == 150


def test_content_is_hashed_once_per_signature(tmp_path: Path) -> None:
    """Without a signature the content is hashed at each opening."""
    source = CountingSource()
    for stamp, hashed in ((None, 1), (None, 2), ("a", 3), ("a", 3), ("b", 4)):
        source.stamp = stamp
        open_image_cache(source, 3, 8, tmp_path)
        assert source.hashed == hashed


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partial store is removed; the next opening starts from scratch."""
    source = CountingSource()
    with monkeypatch.context() as patch:
        patch.setattr(source, "decode", Mock(side_effect=OSError(errno.ENOSPC, "full")))
        with pytest.raises(ResourceError, match=r"cannot write the image store .*: full; set stor"):
            open_image_cache(source, 150, 8, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
    assert len(open_image_cache(source, 150, 8, tmp_path).images) == 150


def test_interrupted_decoding_continues_where_it_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """150 rows are three tasks; the second is saved when the interrupt comes."""
    monkeypatch.setattr(image_cache, "TASKS_PER_SAVE", 2)
    interrupt(CountingSource(bad=(70,)), 150, 8, tmp_path, after=128)
    source, seen = CountingSource(bad=(140,)), []
    stored = open_image_cache(source, 150, 8, tmp_path, lambda done, total: seen.append(done))
    assert (source.decoded, seen) == ([*range(128, 150)], [150])
    assert (stored.images[:, 3, 3, 1] == np.arange(150)).all()
    assert stored.bad == {70: "row 72: broken", 140: "row 142: broken"}
    names = sorted(path.name for path in the_folder(tmp_path).iterdir())
    assert names == ["bad.json", "checksums.json", "images.npy"]


def test_room_is_needed_only_for_what_is_not_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first 64 rows, 1.9 of 6 MB, are on the disk when decoding continues."""
    monkeypatch.setattr(image_cache, "TASKS_PER_SAVE", 1)
    source = CountingSource(delay=0.01)
    source.stamp = "stamp"
    interrupt(source, 200, 100, tmp_path, after=64)
    free_disk(monkeypatch, 4_500_000)
    with pytest.raises(ResourceError, match="GB free"):
        check_room(source.signature(), 200, 101, tmp_path)
    assert check_room(source.signature(), 200, 100, tmp_path) is None
    assert len(open_image_cache(source, 200, 100, tmp_path).images) == 200


def test_two_at_once_decode_once(tmp_path: Path) -> None:
    """One of three threads decodes; the others wait and map its result."""
    source = CountingSource(delay=0.05)
    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(open_image_cache, source, 200, 8, tmp_path) for _ in range(3)]
    assert [task.result().images[199, 0, 0, 0] for task in tasks] == [199] * 3
    assert sorted(source.decoded) == list(range(200))


def test_a_disk_too_small_is_refused_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 images of 8 x 8 pixels need 19,200 free bytes; 19,199 are refused."""
    source = CountingSource()
    free_disk(monkeypatch, 19_199)
    with pytest.raises(ResourceError, match=r"needs 1\.92e-05 GB, .* has 1\.92e-05 GB free"):
        open_image_cache(source, 100, 8, tmp_path)
    assert source.decoded == []
    free_disk(monkeypatch, 19_200)
    assert len(open_image_cache(source, 100, 8, tmp_path).images) == 100


def the_folder(store: Path) -> Path:
    (folder,) = [path for path in store.iterdir() if path.is_dir()]
    return folder


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("images.npy", b"", "magic string"),
        ("images.npy", b"\x93NUMPY\x01\x00\x76\x00{'descr': ((", "header"),
        ("images.npy", b"PK\x03\x04", "magic string"),
        ("images.npy", saved(np.zeros((3, 8, 8, 3), np.uint8))[:-1], "length is greater than file"),
        ("images.npy", saved(np.zeros((2, 8, 8, 3), np.uint8)), r"uint8 \(2, 8, 8, 3\)"),
        ("images.npy", saved(np.zeros((3, 8, 8, 3), np.int8)), "images are int8"),
        ("images.npy", None, "No such file"),
        ("bad.json", b"[]", "no attribute 'items'"),
        ("bad.json", b"\xff", "can't decode"),
        ("bad.json", b"", "Expecting value"),
    ],
)
def test_damage_is_named(tmp_path: Path, name: str, data: bytes | None, why: str) -> None:
    """The error is not the user's fault, and names the folder to delete."""
    open_image_cache(CountingSource(), 3, 8, tmp_path)
    folder = the_folder(tmp_path)
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(StorageError, match=f"{folder} is damaged: .*{why}.*; delete it"):
        open_image_cache(CountingSource(), 3, 8, tmp_path)
    shutil.rmtree(folder)
    assert len(open_image_cache(CountingSource(), 3, 8, tmp_path).images) == 3


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b"[64]", b"[999, {}]", b'["64", {}]'])
def test_decoding_whose_progress_is_damaged_begins_anew(tmp_path: Path, damage: bytes) -> None:
    open_image_cache(CountingSource(), 100, 8, tmp_path)
    building = the_folder(tmp_path).rename(the_folder(tmp_path).with_suffix(".building"))
    (building / PROGRESS).write_bytes(damage)
    source = CountingSource()
    assert len(open_image_cache(source, 100, 8, tmp_path).images) == 100
    assert len(source.decoded) == 100
