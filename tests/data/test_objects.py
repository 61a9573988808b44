"""Tests of objects below a URL that is written to."""

from pathlib import Path
from threading import Event
from time import sleep
from typing import Any

import pytest
from pyarrow.fs import FileInfo, FileType

from mtcon_ray.data import objects
from mtcon_ray.data.objects import Objects, _open
from mtcon_ray.errors import StorageError
from tests.data.folder_store import FolderStore
from tests.data.object_store import object_store
from tests.data.signed_store import READER, signed_store

URL = "s3://photos/lab/a b"


def test_objects_of_a_real_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store(monkeypatch) as server:
        store, path = Objects(URL), tmp_path / "file"
        assert (store.list(), store.read("x/1")) == ({}, None)
        store.write("x/1", b"one")
        path.write_bytes(bytes(12_000_000))  # in several parts
        store.write("x/2", path)
        assert {n: info.size for n, info in store.list().items()} == {"x/1": 3, "x/2": 12_000_000}
        assert (set(store.list("x")), set(store.list(deep=False))) == ({"x/1", "x/2"}, {"x"})
        store.fetch({"x/2": (tmp_path / "there" / "2", 12_000_000)})
        assert (tmp_path / "there" / "2").read_bytes() == path.read_bytes()
        assert store.read("x/1") == b"one"
        store.delete(["x/1", "x/2", "x/3"])
        assert store.list() == {}
        monkeypatch.setattr(objects, "_keys", {})
        objects.keep_keys({"access_key": "canary-key", "secret_key": "canary-secret"})
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)  # as a driver does before Tune starts
        store.write("y", b"")
        assert [name for name in server.names() if not name.endswith("/")] == ["lab/a b/y"]
        rule = r"cannot use the root at s3://.*keys come from variables and"
        with server.away(), pytest.raises(StorageError, match=rule) as error:
            store.write("y", b"")
        assert "canary" not in str(error.value)


def test_keys_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server verifies signatures."""
    with signed_store(monkeypatch):
        Objects(URL).write("x", b"content")
        for name, key in READER.items():
            monkeypatch.setenv(name, key)
        _open.cache_clear()
        assert Objects(URL).read("x") == b"content"
        with pytest.raises(StorageError, match=r"(?i)access.?denied"):
            Objects(URL).write("x", b"changed")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-canary")
        _open.cache_clear()
        with pytest.raises(StorageError, match="SIGNATURE") as error:
            Objects(URL).list()
        assert "canary" not in str(error.value)


def test_a_failed_download_stops_the_others(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = Event()

    def before(request: str, path: str) -> None:
        if path.endswith("bad"):
            begun.wait(10)

    def tell(num_bytes: int) -> None:
        begun.set()
        sleep(0.005)

    monkeypatch.setattr(objects, "CHUNK_BYTES", 1)
    Objects(URL).write("good", bytes(400))
    Objects(URL).write("bad", b"abc")
    store.before = before
    with pytest.raises(StorageError, match=r"a b: bad has 3 bytes instead of 400; try again"):
        Objects(URL).fetch({name: (tmp_path / name, 400) for name in ("good", "bad")}, tell)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_folders_of_a_store_whose_lists_have_none(store: FolderStore) -> None:
    google = Objects("gs://bucket/lab")
    for name in ("sweeps/a/spec.yaml", "sweeps/a/log/1", "sweeps/b", "store/x"):
        google.write(name, b"")
    assert set(google.list("sweeps", deep=False)) == {"sweeps/a", "sweeps/b"}
    assert set(google.list(deep=False)) == {"sweeps", "store"}
    assert len(google.list("sweeps")) == 3


def test_a_name_outside_is_refused(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [FileInfo("photos/lab/a b/a/../../x", FileType.File, size=1)]
    monkeypatch.setattr(FolderStore, "get_file_info", lambda self, place: found)
    with pytest.raises(StorageError, match="it has an object '"):
        Objects(URL).list()


@pytest.mark.parametrize("fault", [503, "cut"])
def test_faults_leave_no_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fault: Any) -> None:
    """With several parts, an upload that is not completed is no object."""
    (tmp_path / "file").write_bytes(bytes(12_000_000))
    with object_store(monkeypatch) as server:
        Objects(URL).write("x", b"before")
        server.fault = lambda method, path: fault if method == "PUT" else None
        with pytest.raises(StorageError, match="cannot use the root"):
            Objects(URL).write("x", tmp_path / "file")
        server.fault = lambda method, path: None
        assert Objects(URL).read("x") == b"before"
        assert len(server.requests) < 30
