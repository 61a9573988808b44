"""Mirror of a sweep: what is copied, in which order, and what happens if its store fails."""

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from mtcon_ray.base.paths import (
    LAST_FILE,
    PREVIOUS_FILE,
    checkpoint_folder,
)
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.errors import DataError, SpecError, SweepError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.mirror import Mirror, mirrored
from mtcon_ray.sweep.mirror_objects import LIST, Objects
from mtcon_ray.sweep.restore import is_mirrored, restore
from mtcon_ray.training import checkpoint
from tests.sweep.mirrored_sweep import BUCKET, URL, FolderStore, Notes, contents, problems, train_on
from tests.sweep.written_sweep import record_of
from tests.waiting import wait_until


def test_only_what_has_changed_is_copied_and_what_is_gone_is_removed(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    mirror = Mirror(folder, BUCKET)
    mirror.copy()
    store.written.clear()
    train_on(folder, 2)
    mirror.copy()
    assert [re.sub(r"\.pt-[0-9a-f]+$", ".pt", name) for name in store.written] == [
        "checkpoints/trial-0002/last.pt", "events.jsonl", "checkpoints/trial-0002/model.pt", LIST,
    ]  # fmt: skip
    train_on(folder, 3)
    checkpoint.discard_network(checkpoint_folder(folder, "trial-0001"), "storage.keep: 1")
    foreign = store.folder / "bucket/deep/shoes-1/checkpoints/holiday.jpg"
    foreign.touch()
    mirror.copy()
    names = contents(store.folder / "bucket/deep/shoes-1")
    assert not [n for n in names if "last.pt" in n or "trial-0001/model.pt" in n]
    assert len([n for n in names if "model.pt" in n]) == 2
    assert foreign.exists(), "only objects of a mirror's names are removed"
    there = restore(URL, tmp_path / "new")
    assert problems(there) == []
    assert contents(there) == contents(folder)


def test_the_resume_state_before_is_copied_where_it_is_the_only_one(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    """A kill between the two renames of a checkpoint leaves it so."""
    mirror, place = Mirror(folder, BUCKET), checkpoint_folder(folder, "trial-0002")
    train_on(folder, 2)
    mirror.copy()
    assert not (checkpoint_folder(restore(URL, tmp_path), "trial-0002") / PREVIOUS_FILE).exists()
    (place / LAST_FILE).unlink()
    mirror.copy()
    there = checkpoint_folder(restore(URL, tmp_path / "new"), "trial-0002")
    assert (there / PREVIOUS_FILE).read_bytes() == (place / PREVIOUS_FILE).read_bytes()
    assert not (there / LAST_FILE).exists()


def last_epoch(folder: Path) -> int:
    return record_of(folder).trials["trial-0002"].last_epoch


def settled(folder: Path) -> list[str]:
    """Returns what is wrong in a sweep's folder when a resume has ended what had ended."""
    record = record_of(folder)
    for trial in record.trials.values():
        if not trial.is_open:
            record.tidy(trial)
    return problems(folder)


@pytest.mark.parametrize("moment", range(4))
def test_a_pass_that_is_cut_anywhere_leaves_a_whole_state(
    folder: Path, store: FolderStore, tmp_path: Path, moment: int
) -> None:
    """The trial ends before one of the objects of a pass, and each object may be the last one."""
    mirror = Mirror(folder, BUCKET)
    mirror.copy()
    train_on(folder, 2)
    states = list[Path]()

    def look(path: str) -> None:
        if len(states) == moment:
            train_on(folder, 3)
        states.append(restore(URL, tmp_path / f"root-{len(states)}"))

    store.before = look
    mirror.copy()
    store.before = lambda path: None
    states.append(restore(URL, tmp_path / "last"))
    assert len(states) > moment + 1
    for there in states:
        assert settled(there) == []
    assert last_epoch(states[0]) == 1
    assert last_epoch(states[-1]) >= 2


def test_a_list_that_is_replaced_while_it_is_read_is_read_again(
    folder: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the driver of a sweep that somebody else restores."""
    Mirror(folder, BUCKET).copy()
    objects = Objects(URL)
    whole = objects.read_list()
    read, cuts = objects.read, [10, 30]

    def cut(name: str) -> Iterator[bytes]:
        data = b"".join(read(name))
        yield data[: cuts.pop()] if cuts else data

    monkeypatch.setattr(objects, "read", cut)
    assert objects.read_list() == whole
    cuts[:] = [1, 2, 3]
    with pytest.raises(SweepError, match=r"mirror.json was not written by this version"):
        objects.read_list()


def test_a_driver_copies_while_it_runs_and_at_its_end(
    folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcon_ray.sweep.mirror.MIRROR_SECONDS", 0.05)
    notes = Notes()
    with mirrored(folder, BUCKET, notes, resume=False):
        wait_until(lambda: "spec.yaml" in str(store.written), "a first copy")
        train_on(folder, 3)
    assert contents(restore(URL, tmp_path / "new")) == contents(folder)
    assert notes.told == []


def stop(folder: Path, notes: Notes, act: Callable[[], None], *, resume: bool = False) -> None:
    """Drives a sweep that does one thing and is then stopped by a signal."""

    def drive() -> None:
        with mirrored(folder, BUCKET, notes, resume=resume):
            act()
            raise Interrupted("stopped by SIGTERM")

    with pytest.raises(Interrupted):
        drive()


def test_a_store_that_fails_is_told_of_once_and_at_the_end(
    folder: Path,
    store: FolderStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("mtcon_ray.sweep.mirror.MIRROR_SECONDS", 0.02)
    monkeypatch.setattr("mtcon_ray.sweep.mirror.STOPPED_DRAIN_SECONDS", 0.5)
    failed, notes = list[str](), Notes()

    def fail(path: str) -> None:
        failed.append(path)
        raise OSError("the store is away")

    def break_store() -> None:
        store.before = fail
        wait_until(lambda: len(failed) > 3, "some attempts")

    stop(folder, notes, break_store)
    assert [r.getMessage().count("the store is away") for r in caplog.records] == [1]
    (note,) = notes.told
    assert note.startswith("THE MIRROR IS INCOMPLETE (cannot use storage.mirror at")
    assert note.endswith(f"`mtcon-ray mirror shoes-1 --root {folder.parents[1]}`")
    # At the start a new sweep is refused, and a resumed one goes on.
    with pytest.raises(DataError, match="the store is away"):
        mirrored(folder, BUCKET, notes, resume=False).__enter__()
    stop(folder, notes, lambda: setattr(store, "before", lambda path: None), resume=True)
    assert "the store is away" in notes.told[1]
    assert len(notes.told) == 2, "the last copy has succeeded"


def test_an_ordinary_end_waits_for_the_store_to_come_back(
    folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcon_ray.sweep.mirror.RETRY_SECONDS", 0.01)
    notes, failed = Notes(), list[str]()

    def fail(path: str) -> None:
        failed.append(path)
        if len(failed) < 4:
            raise OSError("the store is away")

    with mirrored(folder, BUCKET, notes, resume=False):
        store.before = fail
    assert notes.told == []
    assert problems(restore(URL, tmp_path / "new")) == []


def test_a_copy_that_takes_too_long_is_cut(
    folder: Path, store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcon_ray.sweep.mirror.STOPPED_DRAIN_SECONDS", 0.2)
    notes, cut = Notes(), Event()

    def wait(path: str) -> None:
        if path.endswith("events.jsonl"):
            cut.wait(20)

    stop(folder, notes, lambda: setattr(store, "before", wait))
    assert "the time at the end was too short" in notes.told[0]
    cut.set()
    wait_until(lambda: "mtcon-mirror" not in {t.name for t in threading.enumerate()}, "its end")
    assert LIST not in store.written[1:]
    assert not is_mirrored(URL)


@pytest.mark.parametrize("given", ["/mnt/backup", "hf://datasets/a/b/", "s3://key:canary@b/"])
def test_a_mirror_is_a_url_that_can_be_written_to(given: str) -> None:
    with pytest.raises(SpecError, match=r"storage\.mirror: must (begin with|read) s3://") as raised:
        parse_spec({"name": "x", "storage": {"mirror": given}})
    assert "canary" not in str(raised.value)
