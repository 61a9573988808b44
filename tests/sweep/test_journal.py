"""The study's journal after kills, on full disks, and while a driver writes to it."""

import errno
import os
from pathlib import Path

import pytest

from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.sweep.journal import Journal
from mtcon_ray.sweep.study import CONFIGURATION, REPEAT, TRIAL, open_study, read_study

LINES = [{"op_code": number, "text": "x" * number} for number in range(200)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.journal"


@pytest.mark.parametrize("lost", [1, 20, 5000])
def test_a_torn_tail_is_cut_off_before_the_next_line(path: Path, lost: int) -> None:
    """A kill or a power cut leaves a torn line, which may be longer than one read."""
    Journal(path).append_logs([*LINES, {"op_code": 200, "text": "x" * 10_000}])
    os.truncate(path, path.stat().st_size - lost)
    Journal(path).append_logs([{"op_code": 201}])
    read = list(Journal(path).read_logs(0))
    assert read == [*LINES, {"op_code": 201}]


def test_a_journal_without_any_whole_line_begins_anew(path: Path) -> None:
    path.write_bytes(b'{"op_code"')
    Journal(path).append_logs(LINES[:1])
    assert list(Journal(path).read_logs(0)) == LINES[:1]


def test_a_link_that_a_killed_optuna_left_is_not_waited_for(path: Path) -> None:
    """The link is dangling if the root was moved; Optuna's own lock would then wait for ever."""
    study = open_study(path, "s")
    (path.parent / "study.journal.lock").symlink_to("/elsewhere/study.journal")
    study.ask()
    assert len(open_study(path, "s").trials) == 1


def test_a_full_disk_leaves_whole_lines_and_names_the_path(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full in the middle of a write: the journal must be as before."""
    study = open_study(path, "s")
    study.ask()
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"cannot write .*study\.journal: No space left"):
        study.ask()
    assert path.read_bytes() == before
    monkeypatch.undo()
    open_study(path, "s").ask()
    assert len(read_study(path, "s").trials) == 2


@pytest.mark.parametrize(
    "line",
    [
        b"{broken",
        b"{}",
        b"7",
        b'{"op_code": 99, "worker_id": "x"}',
        b'{"op_code": []}',
        b'{"op_code": 0, "worker_id": "x"}',
        b"[" * 100_000,
        b"\xff",
    ],
    ids=range(8),
)
def test_a_damaged_line_is_named(path: Path, line: bytes) -> None:
    """The line is the last one, or others follow it."""
    open_study(path, "s")
    before = path.read_bytes()
    for data in (line + b"\n" + before, before + line + b"\n"):
        path.write_bytes(data)
        with pytest.raises(SweepError, match=r"study\.journal is damaged"):
            read_study(path, "s")
    with pytest.raises(SweepError, match=r"study\.journal is damaged"):
        open_study(path, "s")


@pytest.mark.parametrize("line", ["{}", "[]", "null", '{"op_code": 0, "worker_id": "w"}'])
def test_a_line_that_is_not_optunas_is_refused(path: Path, line: str) -> None:
    path.write_text(f"{line}\n")
    for opened in (open_study, read_study):
        with pytest.raises(SweepError, match="is damaged"):
            opened(path, "s")


def test_reading_writes_nothing(path: Path) -> None:
    """Reading writes nothing after a torn line, and without a journal or a study."""
    assert read_study(path, "s").trials == []
    assert not path.exists()
    path.touch()
    assert read_study(path, "s").trials == []
    open_study(path, "s").ask()
    os.truncate(path, path.stat().st_size - 5)
    before = path.read_bytes()
    path.chmod(0o400)
    read_study(path, "s")
    assert path.read_bytes() == before


def test_a_trial_whose_line_is_lost_is_named(path: Path) -> None:
    trial = open_study(path, "s").ask()
    for key, told in ((CONFIGURATION, 0), (REPEAT, 0), (TRIAL, "trial-0000")):
        trial.set_user_attr(key, told)
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(read_study(path, "s").trials) == 1
    path.write_bytes(b"".join(line for line in lines if REPEAT.encode() not in line))
    for reader in (open_study, read_study):
        with pytest.raises(SweepError, match=r"trial-0000 has mtcon\.repeat None"):
            reader(path, "s")


def test_a_journal_that_is_a_folder_is_named(path: Path) -> None:
    path.mkdir()
    with pytest.raises(SweepError, match=r"study\.journal is damaged .*Is a directory"):
        read_study(path, "s")
