"""Mirror of a sweep: what is copied, from which moment, and what a resume elsewhere finds."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from mtcon_ray.paths import checkpoint_folder, journal_file, sweep_folder, trial_log
from mtcon_ray.recorded import load_recorded
from mtcon_ray.status import Status
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.sweep.mirror import Mirror
from mtcon_ray.sweep.mirror_objects import LIST
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.restore import is_mirrored, restore
from mtcon_ray.sweep.resume import continued_trials, discard_leftovers, settle
from mtcon_ray.sweep.searcher import report_missing, tell
from mtcon_ray.sweep.study import open_study
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Reported
from mtcon_ray.training import checkpoint
from tests.sweep.written_sweep import MEAN_ACCURACY, save_model, value, write_sweep

BUCKET = "s3://bucket/deep/"
URL = BUCKET + "shoes-1"


class FolderStore(SubTreeFileSystem):  # type: ignore[misc]
    """Object store whose bucket is a folder; `before` is called with each object's path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), LocalFileSystem())
        self.folder = folder
        self.written: list[str] = []
        self.before: Callable[[str], None] = lambda path: None

    def open_output_stream(self, path: str, **options: Any) -> Any:
        self.before(path)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path.removeprefix("bucket/deep/shoes-1/"))
        return super().open_output_stream(path, **options)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    """Returns a store in which each URL is found."""
    folder = tmp_path / "store"
    (folder / "bucket/deep/shoes-1").mkdir(parents=True)
    made = FolderStore(folder)

    def opened(url: str, what: str) -> tuple[FolderStore, str]:
        return made, url.partition("://")[2]

    monkeypatch.setattr("mtcon_ray.sweep.mirror_objects.open_store", opened)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a sweep of three trials, of which the last one was interrupted."""
    folder = sweep_folder(tmp_path / "root", "shoes-1")
    write_sweep(folder)
    return folder


def problems(folder: Path) -> list[str]:
    audit = Audit(folder)
    return [f"{f.where}: {f.problem}" for f in (*audit.records(), *audit.files())]


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def objects_of(store: FolderStore) -> set[str]:
    return set(contents(store.folder / "bucket/deep/shoes-1"))


def train_on(folder: Path, epochs: int) -> None:
    """Trains the last trial until this epoch, and ends it if that is its last one."""
    spec = load_recorded(folder / "spec.yaml")
    study, record = open_study(journal_file(folder), folder.name), SweepRecord(folder, spec)
    (trial,) = continued_trials(study)
    record.trial_started(trial)
    place = record.checkpoints(trial)
    for epoch in range(record.spool(trial).last_epoch + 1, epochs + 1):
        save_model(place, spec.trial(trial.params), epoch, value(2, epoch), "model.pt")
        checkpoint.save(
            place / "last.pt", {"best": value(2, epoch), "step": epoch},
            previous=place / "last.previous.pt",
        )  # fmt: skip
        told = {"loss": 1.0 / epoch, MEAN_ACCURACY: value(2, epoch)}
        record.spool(trial).append(Reported(epoch=epoch, metrics=told))
        report_missing(study, trial, record.values(trial))
    if epochs == record.epochs(trial):
        tell(study, trial, Status.FINISHED, value(2, epochs), None)
        record.trial_ended(trial, Status.FINISHED, None)


def test_a_restored_sweep_is_the_mirrored_one(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    assert not is_mirrored(URL)
    Mirror(folder, BUCKET).claim()
    assert not is_mirrored(URL), "a sweep that has only begun cannot be resumed"
    num_files = Mirror(folder, BUCKET).copy()
    assert is_mirrored(URL)
    there = restore(URL, tmp_path / "new")
    assert there == sweep_folder(tmp_path / "new", "shoes-1")
    assert contents(there) == contents(folder)
    assert len(contents(there)) == num_files
    assert {(there / name).stat().st_mode & 0o77 for name in contents(there)} == {0}
    assert problems(there) == []
    before = len(store.written)
    Mirror(there, BUCKET).copy()
    assert store.written[before:] == [], "what was restored is not sent again"


def test_only_what_has_changed_is_copied_and_what_is_gone_is_removed(
    folder: Path, store: FolderStore, tmp_path: Path
) -> None:
    mirror = Mirror(folder, BUCKET)
    mirror.copy()
    store.written.clear()
    train_on(folder, 2)
    mirror.copy()
    assert [re.sub(r"\.pt-[0-9a-f]+$", ".pt", name) for name in store.written] == [
        "study.journal", "checkpoints/trial-0002/last.pt", "spool/trial-0002.jsonl",
        "checkpoints/trial-0002/model.pt", LIST,
    ]  # fmt: skip
    train_on(folder, 3)
    checkpoint.discard_network(checkpoint_folder(folder, "trial-0001"), "storage.keep: 1")
    foreign = store.folder / "bucket/deep/shoes-1/checkpoints/holiday.jpg"
    foreign.touch()
    mirror.copy()
    names = objects_of(store)
    assert not [n for n in names if "last.pt" in n or "trial-0001/model.pt" in n]
    assert len([n for n in names if "model.pt" in n]) == 2
    assert foreign.exists(), "only objects of a mirror's names are removed"
    there = restore(URL, tmp_path / "new")
    assert problems(there) == []
    assert contents(there) == contents(folder)


def settled(folder: Path) -> list[str]:
    """Returns what is wrong in a sweep's folder when a resume has reconciled it."""
    study = open_study(journal_file(folder), folder.name)
    settle(study, SweepRecord(folder, load_recorded(folder / "spec.yaml")))
    discard_leftovers(study, SweepRecord(folder, load_recorded(folder / "spec.yaml")))
    return problems(folder)


@pytest.mark.parametrize("moment", range(5))
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
    assert EventLog(trial_log(states[0], "trial-0002")).last_epoch == 1
    assert EventLog(trial_log(states[-1], "trial-0002")).last_epoch >= 2
