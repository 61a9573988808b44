"""Tests of the files of a trial in an object store."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mtcon_ray.data import objects
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import PreemptedError, StorageError
from mtcon_ray.training import uploads
from mtcon_ray.training.uploads import StoredTrial, discard_objects, fetch_files, newest
from tests.data.folder_store import FolderStore, folder_store

URL = "s3://bucket/root/sweeps/a/checkpoints/trial-0000"
ALL = ("last.pt", "last.previous.pt", "model.pt", "predictions.npz", "removed.txt")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    monkeypatch.setattr(objects, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(uploads, "SAVE_SECONDS", 0.1)
    return folder_store(tmp_path / "store", monkeypatch)


class Process:
    """A process of the trial, with its folder."""

    def __init__(self, folder: Path, attempt: str, **options: Any) -> None:
        self.folder = folder / attempt
        self.folder.mkdir()
        options = {"check": Mock(), "lazy": False, **options}
        self.stored = StoredTrial(URL, self.folder, attempt, **options)
        self.stored.fetch()

    def save(self, name: str, number: int, content: str = "", *, must: bool = False) -> None:
        path = self.folder / name
        path.write_text(content or f"{name} {number} {self.folder.name}")
        self.stored.put(path, number, must=must)


def names() -> list[str]:
    return sorted(Objects(URL).list())


def test_two_newest_states_and_the_newest_network_stay(store: FolderStore, tmp_path: Path) -> None:
    process = Process(tmp_path, "00001.00001")
    for step in (5, 10, 1000):
        process.save("model.pt", step)
        process.save("last.pt", step)
    assert names() == [
        "last-00001.00001-000000010.pt", "last-00001.00001-000001000.pt",
        "model-00001.00001-000001000.pt",
    ]  # fmt: skip
    other = Process(tmp_path, "00001.00002")
    assert (other.folder / "last.pt").read_text() == "last.pt 1000 00001.00001"
    assert (other.folder / "last.previous.pt").read_text() == "last.pt 10 00001.00001"
    assert (other.folder / "model.pt").read_text() == "model.pt 1000 00001.00001"
    other.save("last.pt", 3)
    states = [n for n in names() if n.startswith("last")]
    assert states == ["last-00001.00001-000001000.pt", "last-00001.00002-000000003.pt"]


def test_a_process_outliving_its_driver_changes_nothing(store: FolderStore, tmp_path: Path) -> None:
    old = Process(tmp_path, "00001.00001")
    old.save("last.pt", 5)
    new = Process(tmp_path, "00002.00001")
    new.save("model.pt", 6)
    new.save("last.pt", 6)
    for name in ("model.pt", "last.pt"):
        old.save(name, 900)
    found = newest(names())
    assert found["last.pt"] == "last-00002.00001-000000006.pt"
    assert found["model.pt"] == "model-00002.00001-000000006.pt"
    before, taken = names(), Mock(side_effect=PreemptedError("a later driver"))
    with pytest.raises(PreemptedError):
        Process(tmp_path, "00001.00002", check=taken).save("last.pt", 1000)
    assert names() == before


def test_a_save_that_the_store_does_not_take_stays_until_the_next(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = Process(tmp_path, "00001.00001")
    store.refuse()
    process.save("model.pt", 1)
    process.save("last.pt", 1)
    with monkeypatch.context() as patched:
        patched.setattr(objects, "GIVE_UP_SECONDS", 0.1)
        with pytest.raises(StorageError):
            process.save("last.pt", 2, must=True)
    store.refuse("PUT", times=2)
    assert names() == []
    process.save("last.pt", 3, must=True)
    assert names() == ["last-00001.00001-000000003.pt", "model-00001.00001-000000001.pt"]


def test_a_network_waits_for_the_next_state(store: FolderStore, tmp_path: Path) -> None:
    process = Process(tmp_path, "00001.00001", lazy=True)
    for epoch in (1, 2, 3):
        process.save("model.pt", epoch)
    assert store.asked("PUT") == []
    process.save("last.pt", 30)
    assert store.asked("PUT") == ["model-00001.00001-000000003.pt", "last-00001.00001-000000030.pt"]
    process.save("model.pt", 4, must=True)
    assert names()[-1] == "model-00001.00001-000000004.pt", "the end of a trial needs its network"


def test_copies_follow_the_store(store: FolderStore, tmp_path: Path) -> None:
    process, copy = Process(tmp_path, "00001.00001"), tmp_path / "copy"

    def fetch() -> dict[str, str]:
        fetch_files(Objects(URL), Objects(URL).list(), copy, ALL)
        return {path.name: path.read_text() for path in copy.glob("*")}

    process.save("model.pt", 1, "a")
    process.save("predictions.npz", 1, "p")
    process.save("last.pt", 1)
    assert fetch().keys() == {"model.pt", "predictions.npz", "last.pt"}
    process.save("model.pt", 2, "b")
    store.requests.clear()
    assert fetch()["model.pt"] == "b"
    assert len(store.asked("GET")) == 1, "files that are there are not downloaded again"
    for _ in range(2):
        discard_objects(URL, ["last.pt"])
    assert fetch().keys() == {"model.pt", "predictions.npz"}
    Objects(URL).write("removed.txt", b"storage.keep: 1")
    Objects(URL).write("../strange.pt", b"")
    discard_objects(URL, uploads.NETWORKS)
    assert fetch().keys() == {"predictions.npz", "removed.txt"}
