"""A full or read-only disk, and files damaged between two commands."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import TRAIN
from benchmarks.faults.kills import job_of
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import (
    LAST_FILE,
    MLFLOW_DATABASE,
    PLAN_FILE,
    SPEC_FILE,
    cache_folder,
    event_file,
)

DISK_MEGABYTES = 24
READ_ONLY_TRIES = 100
REFUSED = (1, 2)
TRIAL_CHANGES = (b'{"kind": "start", "trial": ', b'{"kind": "end", "trial": ')

Damage = Callable[[Path, Random], None]


def disk(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Fills the disk or makes it read-only during a training, and resumes after the repair.

    MLflow's database is on another disk, like a server's database. Needs the right to mount.
    """
    case = Case(folder, round_, outcome, TRAIN)
    try:
        with _small_disk(case.folder / "root"):
            case.prepare()
            other = case.folder / "mlflow.db"
            shutil.move(case.root / MLFLOW_DATABASE, other)
            case.changes["tracking"] = {"uri": f"sqlite:///{other}"}
            broken = case.choose((_full, _read_only))
            outcome.happened.append(broken.__name__.strip("_"))
            command = case.start()
            if case.reach(command, case.early_moment()):
                with broken(case.root):
                    case.expect_end(command, [1], "error: cannot write")
                    case.check_left(command)
                command = case.resume()
                case.recover(command)
            case.finish(command)
            case.close()
    finally:
        case.close()


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    size = f"size={DISK_MEGABYTES}m,mode=0700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def _full(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    with filler.open("wb") as file, suppress(OSError):
        while os.write(file.fileno(), bytes(1 << 12)):
            pass
    yield
    filler.unlink()


@contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Mounts a folder read-only over itself: a remount is refused while its lock is open."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    for left in reversed(range(READ_ONLY_TRIES)):  # refused while a file is open for writing
        command = ["mount", "-o", "remount,bind,ro", str(folder)]
        if subprocess.run(command, check=not left, capture_output=True).returncode == 0:
            break
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def truncated(path: Path, random: Random) -> None:
    """Cuts a file at a random byte, as a file system after a power cut may."""
    os.truncate(path, random.randrange(path.stat().st_size))


def flipped(path: Path, random: Random) -> None:
    """Flips a random bit of a file."""
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)


def emptied(path: Path, random: Random) -> None:
    """Removes a file's content."""
    os.truncate(path, 0)


def cut_line(path: Path, random: Random) -> None:
    """Cuts the last line of a file, like a kill in the middle of a write."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][: random.randrange(1, len(lines[-1]) - 1)])


def garbled_line(path: Path, random: Random) -> None:
    """Replaces a line by other bytes."""
    lines = path.read_bytes().splitlines(keepends=True)
    lines[random.randrange(len(lines))] = random.randbytes(40).replace(b"\n", b"") + b"\n"
    path.write_bytes(b"".join(lines))


def cut_after_start(path: Path, random: Random) -> None:
    """Cuts an event log at a random byte after the last start or end of a trial.

    All trials in training then have their starts. Their checkpoints have the epochs cut off.
    """
    data = path.read_bytes()
    last = max(data.rindex(kind) for kind in TRIAL_CHANGES if kind in data)
    os.truncate(path, random.randrange(data.index(b"\n", last) + 1, len(data) + 1))


def _last(case: Case) -> Path:
    found = [place / LAST_FILE for place in case.trial_folders()]
    return next(path for path in found if path.exists())


def _images(case: Case) -> Path:
    return next(cache_folder(case.root).glob("*/images.npy"))


def _log(case: Case) -> Path:
    return event_file(case.run)


# A name, a function that finds a file, and its damage.
VARIANTS: tuple[tuple[str, Callable[[Case], Path], Damage], ...] = (
    ("event log: cut after the start of a trial", _log, cut_after_start),
    ("checkpoint truncated", _last, truncated),
    ("event log: last line cut", _log, cut_line),
    ("spec truncated", lambda case: case.run / SPEC_FILE, truncated),
    ("checkpoint: a bit flipped", _last, flipped),
    ("event log: a line garbled", _log, garbled_line),
    ("plan truncated", lambda case: case.run / PLAN_FILE, truncated),
    ("cached images emptied", _images, emptied),
    ("event log emptied", _log, emptied),
    ("checkpoint emptied", _last, emptied),
    ("cached images truncated", _images, truncated),
)


def damage(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Kills the driver, damages a file of the sweep, and resumes.

    The resume recovers, or refuses with a clear error. After a refusal, the file is restored from a
    backup, or the cached images are deleted as the message says, and the run is resumed again.
    """
    case = Case(folder, round_, outcome, job_of(round_))
    try:
        case.prepare()
        name, find, do = case.choose(VARIANTS)
        outcome.happened.append(name)
        command = case.start()
        if case.reach(command, case.early_moment()):
            command.kill_all()
            path = find(case)
            before = path.read_bytes()
            do(path, case.random)
            command = case.resume()
            case.recover(command)
            if command.wait():
                case.expect_end(command, REFUSED, "error: ")
                if path.parent.parent == cache_folder(case.root):
                    shutil.rmtree(path.parent)
                else:
                    path.write_bytes(before)
                command = case.resume()
                case.recover(command)
        case.finish(command)
    finally:
        case.close()
