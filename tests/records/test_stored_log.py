"""Tests of the event log in an object store, and of its summary."""

import gzip
import json
import time
from pathlib import Path

import pytest

from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import SweepError
from mtcon_ray.records.results import load_sweep
from mtcon_ray.records.stored_log import StoredLog, read_log, read_summary, write_summary
from tests.data.folder_store import FolderStore
from tests.sweep.written_sweep import write_sweep

URL = "s3://bucket/root/sweeps/a"


def log_of(path: Path, driver: int, done: int = 0) -> StoredLog:
    """Returns the writer of a log of which the store has the first bytes."""
    return StoredLog(Objects(URL), path, driver, done, lambda: None)


def pushed(path: Path, lines: list[str]) -> StoredLog:
    """Returns the writer of a log that is in the store, with a part for each line."""
    log = log_of(path, 1)
    for line in lines:
        log.append_lines([line])
        log.push()
    return log


def read() -> bytes:
    return read_log(Objects(URL))


def segments(store: FolderStore) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in store.names())


def test_segments_join(store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between the whole log and the removal changes nothing."""
    log = pushed(tmp_path / "log", ["a", "bc", "d"])
    log.push()  # nothing new
    whole = b"a\nbc\nd\n"
    assert (segments(store), read()) == ([f"000001-{n}" for n in (0, 2, 5)], whole)
    with monkeypatch.context() as killed:
        killed.setattr(Objects, "remove", lambda self, folder: None)
        killed.setattr(Objects, "delete", lambda self, names: None)
        log.join()
    assert (len(segments(store)), read()) == (4, whole)
    log.join()
    assert (segments(store), read()) == (["000001-0"], whole)


def test_what_an_earlier_driver_adds_does_not_count(store: FolderStore, tmp_path: Path) -> None:
    first = pushed(tmp_path / "old", ["a", "b"])
    (tmp_path / "new").write_bytes(b"a\nb\n")
    second = log_of(tmp_path / "new", 2, done=4)
    first.append_lines(["late, and longer than the new one"])
    first.push()
    assert read() == first.path.read_bytes(), "nobody has taken over yet"
    second.append_lines(["NEW"])
    second.push()
    assert read() == b"a\nb\nNEW\n"
    second.join()
    for done in (first.done, 30):
        first.append_lines(["later"])
        first.done = done
        first.push()
        assert read() == b"a\nb\nNEW\n"
    first.join()
    assert read() == b"a\nb\nNEW\n", "an earlier driver removes its own segments alone"


def test_a_log_that_is_joined_meanwhile_is_read_again(store: FolderStore, tmp_path: Path) -> None:
    log = pushed(tmp_path / "log", ["a", "b"])

    def join(request: str, name: str) -> None:
        if request == "GET":
            store.before = lambda request, path: None
            log.join()

    store.before = join
    assert read() == b"a\nb\n"


def test_a_missing_segment_is_named(store: FolderStore, tmp_path: Path) -> None:
    pushed(tmp_path / "log", ["a", "b", "c"])
    Objects(URL).delete(["log/parts/000001-2"])
    with pytest.raises(SweepError, match=f"{URL} is damaged: .* from byte 2 to 4; restore"):
        read()


def test_a_summary_shows_what_the_log_shows(store: FolderStore, tmp_path: Path) -> None:
    folder, seen = sweep_folder(tmp_path / "root", "a"), sweep_folder(tmp_path / "seen", "a")
    write_sweep(folder)
    assert not read_summary(Objects(URL), seen)
    write_summary(Objects(URL), folder, 20.0)
    assert read_summary(Objects(URL), seen)
    assert is_driven(seen)
    write_summary(Objects(URL), folder, None)
    (seen / "plan.json").unlink()
    assert read_summary(Objects(URL), seen)
    assert not is_driven(seen)
    whole, short = load_sweep(folder), load_sweep(seen)
    assert whole.plan == short.plan
    for trial, other in zip(whole.trials, short.trials, strict=True):
        for name in ("value", "status", "last_epoch", "last_metrics", "probe_values"):
            assert getattr(trial, name) == getattr(other, name)
    begun = whole.events[0].time_ms / 1e3
    assert (seen / "spec.yaml").stat().st_mtime == pytest.approx(begun, abs=1)
    assert time.time() - begun < 600


LATE = {"until": 1, "spec.yaml": "", "plan.json": "", "events.jsonl": f'{{"time_ms": {10**25}}}'}


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\x1f\x8b", gzip.compress(json.dumps(LATE).encode())]
)
def test_a_damaged_summary_is_none(store: FolderStore, tmp_path: Path, content: bytes) -> None:
    Objects(URL).write("summary.json.gz", content)
    assert not read_summary(Objects(URL), tmp_path / "a")
    assert not event_file(tmp_path / "a").exists()
