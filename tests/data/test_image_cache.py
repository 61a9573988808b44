"""Tests of the image store: decoded once, atomic, and checked for disk space."""

import errno
import io
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from PIL import Image

from mtcon_ray.data import image_cache
from mtcon_ray.data.decoding import DecoderLostError, decode_files
from mtcon_ray.data.image_cache import PROGRESS, check_room, open_image_cache
from mtcon_ray.data.image_files import ImageFiles
from mtcon_ray.data.sources import DataSource
from mtcon_ray.data.sources.class_folders import FolderSource
from mtcon_ray.errors import DataError, ResourceError, StorageError


@pytest.fixture(autouse=True)
def _short_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_cache, "ROWS_PER_TASK", 64)


def gray_source(bad: tuple[int, ...] = (), delay: float = 0, stamp: str | None = None) -> Mock:
    """Returns a source with a signature. Image i has grey level i, and `bad` images fail."""

    def decode(rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        time.sleep(delay)
        images = np.tile(np.array(rows, np.uint8)[:, None, None, None], (1, size, size, 3))
        return images, {row: f"row {row + 2}: broken" for row in rows if row in bad}

    source = Mock(spec_set=DataSource, num_threads=DataSource.num_threads)
    source.read_labels.side_effect = AssertionError("the store reads no labels")
    source.decode.side_effect = decode
    source.signature.return_value, source.content_key.return_value = stamp, "content"
    return source


def decoded(source: Mock) -> list[int]:
    """Returns all rows that the source has decoded, ascending."""
    return sorted(row for call in source.decode.call_args_list for row in call.args[0])


def free_disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))


def test_images_are_decoded_once_in_order_and_read_only(tmp_path: Path) -> None:
    """150 rows are decoded in three tasks; opening the store again decodes nothing."""
    source, seen = gray_source(bad=(70, 2)), []
    stored = open_image_cache(source, 150, 8, tmp_path, lambda *counts: seen.append(counts))
    assert stored.images.shape == (150, 8, 8, 3)
    assert (stored.images[:, 3, 3, 1] == np.arange(150)).all()
    assert isinstance(stored.images, np.memmap)
    assert not stored.images.flags.writeable
    assert decoded(source) == list(range(150))
    assert (len(seen), seen[-1]) == (3, (150, 150))
    again = open_image_cache(source, 150, 8, tmp_path)
    assert (again.images == stored.images).all()
    assert list(again.bad.items()) == [(2, "row 4: broken"), (70, "row 72: broken")]
    assert len(decoded(source)) == 150


def test_images_of_another_kind_are_refused(tmp_path: Path) -> None:
    source = gray_source()
    for images in (np.zeros((3, 8, 8), np.uint8), np.zeros((3, 8, 8, 3))):
        source.decode.side_effect = [(images, {})]
        with pytest.raises(DataError, match=r"must return uint8 images \[3, 8, 8, 3\], got"):
            open_image_cache(source, 3, 8, tmp_path)


def test_content_is_hashed_once_per_signature(tmp_path: Path) -> None:
    """Without a signature the content is hashed at each opening."""
    source = gray_source()
    for stamp, hashed in ((None, 1), (None, 2), ("a", 3), ("a", 3), ("b", 4)):
        source.signature.return_value = stamp
        open_image_cache(source, 3, 8, tmp_path)
        assert source.content_key.call_count == hashed


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """The partial store is removed; the next opening starts from scratch."""
    source = gray_source()
    source.decode.side_effect = OSError(errno.ENOSPC, "full")
    with pytest.raises(ResourceError, match=r"cannot write the image store .*: full; set stor"):
        open_image_cache(source, 150, 8, tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == []
    assert len(open_image_cache(gray_source(), 150, 8, tmp_path).images) == 150


def test_decoding_continues_where_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """150 rows are three tasks; the second is saved when the interrupt comes."""
    monkeypatch.setattr(image_cache, "TASKS_PER_SAVE", 2)
    stop = Mock(side_effect=[None, KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        open_image_cache(gray_source(bad=(70,)), 150, 8, tmp_path, stop)
    source, seen = gray_source(bad=(140,)), []
    stored = open_image_cache(source, 150, 8, tmp_path, lambda done, total: seen.append(done))
    assert (decoded(source), seen) == ([*range(128, 150)], [150])
    assert (stored.images[:, 3, 3, 1] == np.arange(150)).all()
    assert stored.bad == {70: "row 72: broken", 140: "row 142: broken"}
    names = sorted(path.name for path in the_folder(tmp_path).iterdir())
    assert names == ["bad.json", "checksums.json", "images.npy"]


def test_only_undecoded_images_need_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 64 rows, 1.9 of 6 MB, are on the disk when decoding continues."""
    monkeypatch.setattr(image_cache, "TASKS_PER_SAVE", 1)
    source = gray_source(delay=0.01, stamp="stamp")
    with pytest.raises(KeyboardInterrupt):
        open_image_cache(source, 200, 100, tmp_path, Mock(side_effect=KeyboardInterrupt))
    free_disk(monkeypatch, 4_500_000)
    with pytest.raises(ResourceError, match="GB free"):
        check_room("stamp", 200, 101, tmp_path)
    assert check_room("stamp", 200, 100, tmp_path) is None
    assert len(open_image_cache(source, 200, 100, tmp_path).images) == 200


def test_other_machines_decode_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder of another machine gets the names, and its reasons get the files' words."""
    for row in range(130):
        path = tmp_path / "images" / "class" / f"{row:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), row).save(path)
    path.write_bytes(b"")
    asked: list[str] = []

    def far(files: ImageFiles, names: Sequence[str], *how: Any) -> Any:
        asked.extend(names)
        time.sleep(0.1)
        return decode_files(files, names, *how)

    class Plugin(FolderSource):
        def decode(self, rows: Sequence[int], size: int) -> Any:  # type: ignore[override]
            return super().decode(rows, size)

    class Single(FolderSource):
        num_threads = 1

    lost = Mock(side_effect=DecoderLostError)
    monkeypatch.setattr(image_cache, "MANY", 13)
    counts = (FolderSource, 0, 130), (FolderSource, 11, 0), (Plugin, 1, 0), (Single, 1, 0)
    for kind, cores, count in counts:
        monkeypatch.setattr(image_cache, "usable_cpus", lambda cores=cores: cores)
        source = kind(kind.Spec(images=str(tmp_path / "images"), tasks=["class"]))
        lent, store = Mock(return_value=nullcontext([lost, far])), tmp_path / f"{kind} {cores}"
        found = open_image_cache(source, 130, 4, store, lent=lent)
        assert (found.images[:129, 0, 0, 0] == range(129)).all()
        assert found.bad == {129: "class/129.png: empty file"}
        assert (len(asked), lent.called) == (count, bool(count))
        asked.clear()
    assert lost.call_count == 1
    archive = shutil.make_archive(str(tmp_path / "a"), "tar", tmp_path / "images")
    assert not FolderSource(FolderSource.Spec(images=archive, tasks=["class"])).is_plain


def test_two_at_once_decode_once(tmp_path: Path) -> None:
    """One of three threads decodes; the others wait and map its result."""
    source = gray_source(delay=0.05)
    with ThreadPoolExecutor(3) as pool:
        tasks = [pool.submit(open_image_cache, source, 200, 8, tmp_path) for _ in range(3)]
    assert [task.result().images[199, 0, 0, 0] for task in tasks] == [199] * 3
    assert decoded(source) == list(range(200))


def test_a_small_disk_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100 images of 8 x 8 pixels need 19,200 free bytes; 19,199 are refused."""
    source = gray_source()
    free_disk(monkeypatch, 19_199)
    with pytest.raises(ResourceError, match=r"needs 1\.92e-05 GB, .* has 1\.92e-05 GB free"):
        open_image_cache(source, 100, 8, tmp_path)
    assert decoded(source) == []
    free_disk(monkeypatch, 19_200)
    assert len(open_image_cache(source, 100, 8, tmp_path).images) == 100


def the_folder(store: Path) -> Path:
    (folder,) = [path for path in store.iterdir() if path.is_dir()]
    return folder


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


DAMAGE = [
    ("images.npy", b"PK\x03\x04", "magic string"),
    ("images.npy", saved(np.zeros((3, 8, 8, 3), np.uint8))[:-1], "length is greater than file"),
    ("images.npy", saved(np.zeros((2, 8, 8, 3), np.uint8)), r"uint8 \(2, 8, 8, 3\)"),
    ("images.npy", saved(np.zeros((3, 8, 8, 3), np.int8)), "images are int8"),
    ("bad.json", b"[]", "no attribute 'items'"),
]


@pytest.mark.parametrize(("name", "data", "why"), DAMAGE)
def test_damage_is_named(tmp_path: Path, name: str, data: bytes, why: str) -> None:
    """The error is not the user's fault, and names the folder to delete."""
    open_image_cache(gray_source(), 3, 8, tmp_path)
    folder = the_folder(tmp_path)
    (folder / name).unlink()
    (folder / name).write_bytes(data)
    with pytest.raises(StorageError, match=f"{folder} is damaged: .*{why}.*; delete it"):
        open_image_cache(gray_source(), 3, 8, tmp_path)
    shutil.rmtree(folder)
    assert len(open_image_cache(gray_source(), 3, 8, tmp_path).images) == 3


@pytest.mark.parametrize("damage", [b"", b"[]", b"{", b"[64]", b"[999, {}]", b'["64", {}]'])
def test_decoding_whose_progress_is_damaged_begins_anew(tmp_path: Path, damage: bytes) -> None:
    open_image_cache(gray_source(), 100, 8, tmp_path)
    building = the_folder(tmp_path).rename(the_folder(tmp_path).with_suffix(".building"))
    (building / PROGRESS).write_bytes(damage)
    source = gray_source()
    assert len(open_image_cache(source, 100, 8, tmp_path).images) == 100
    assert len(decoded(source)) == 100
