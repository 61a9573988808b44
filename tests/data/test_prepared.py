"""Tests of prepared data sets, which are all that trials read of the data."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.base.paths import cache_folder, choose_root
from mtcon_ray.data import prepared
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.disk import build_folder
from mtcon_ray.data.prepared import discard_unused, keep_set, open_set
from mtcon_ray.errors import StorageError
from mtcon_ray.spec.data.base import DataSpec
from tests.data.conftest import TableFiles
from tests.data.folder_store import FolderStore


def rich(files: TableFiles) -> DataSpec:
    """Returns a spec with classes, one of which is unseen, a set and missing labels."""
    frame = files.frame
    frame["tags"] = ["x,y" if row % 3 else "y" for row in range(20)]
    frame.loc[3, "kind"] = ""
    frame.loc[4, "tone"] = "only in test"
    frame["shoe"] = ["ab"[row % 2] for row in range(20)]
    own: dict[str, Any] = {"multi_hot": {"tags": "tags"}, "group_column": "shoe"}
    return files.spec(tasks=["kind", "tags"], held_out=["tone"], **own)


def test_a_node_downloads_a_set_once(files: TableFiles, tmp_path: Path, store: FolderStore) -> None:
    """A set is the data set without its files."""
    here, node = (choose_root("s3://bucket/x", str(tmp_path / name)) for name in ("a", "b"))
    spec = rich(files)
    data = open_dataset(spec, view_size=8, store=cache_folder(here))
    keep_set(data, cache_folder(here))
    files.csv.unlink()
    store.requests.clear()
    keep_set(data, cache_folder(here))
    assert store.asked("PUT") == [], "a set that is there is not uploaded again"
    for _ in range(2):
        other = open_set(spec, cache_folder(node), data.cache, data.fingerprint)
    fields, others = ({**vars(each), "table": vars(each.table)} for each in (data, other))
    np.testing.assert_equal(fields, others)
    assert (data.sizes, data.table.unseen) == ({"kind": 2, "tags": 2}, {"tone": ("only in test",)})
    names = sorted(store.asked("GET"))
    assert names == ["bad.json", "checksums.json", "images.npy", "labels.npz", "names.json"]


def test_a_missing_set_is_named(files: TableFiles, tmp_path: Path, store: FolderStore) -> None:
    place = cache_folder(choose_root("s3://bucket/x", str(tmp_path)))
    name = "f" * 32
    with pytest.raises(StorageError, match=rf"s3://bucket/x/store/sets/{name} is not there"):
        open_set(rich(files), place, name, name)
    with pytest.raises(StorageError, match="have hexadecimal names, got"):
        open_set(rich(files), place, name, "../../x")


@pytest.mark.parametrize("content", [b"", b"{}", b'{"names": 5}', b"\xff"])
def test_damaged_labels_are_named(files: TableFiles, tmp_path: Path, content: bytes) -> None:
    spec = rich(files)
    data = open_dataset(spec, view_size=8, store=tmp_path)
    keep_set(data, tmp_path)
    (tmp_path / "sets" / data.fingerprint / "names.json").write_bytes(content)
    with pytest.raises(StorageError, match=r"the data set .* is damaged: .*; delete it"):
        open_set(spec, tmp_path, data.cache, data.fingerprint)


def test_data_unused_for_a_month_leave_a_node(tmp_path: Path) -> None:
    root = choose_root("s3://bucket/x", str(tmp_path))
    old, new = time.time() - prepared.UNUSED_SECONDS - 60, time.time()
    names = ("store/a", "store/sets/a", "store/remote/a", "running/s")
    for base in (root, tmp_path / "path"):
        for name in names:
            for suffix, then in (("-old", old), ("-new", new)):
                folder = base / f"{name}{suffix}"
                folder.mkdir(parents=True)
                os.utime(folder, (then, then))
        for folder in (base / "store" / "sets", base / "store" / "remote"):
            os.utime(folder, (old, old))
        (used := base / "store" / "used-old").mkdir()
        os.utime(used, (old, old))
        build_folder(used, 0, lambda folder: None)
        discard_unused(base)
        assert used.exists()
    assert [(root / f"{name}-old").exists() for name in names] == [False] * 4
    assert all((root / f"{name}-new").exists() for name in names)
    assert (tmp_path / "path" / "store" / "a-old").exists(), "a root on a path is the only copy"
