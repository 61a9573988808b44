"""The event log of a sweep as JSON lines, which is its record and the queue to MLflow.

The driver alone writes it. Trials send their epochs to the driver.
"""

import errno
import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path

from mtcon_ray.base.root_files import below, make_folder
from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.records.events import Event, Started, from_line

# Errors of a line that is not an event.
NO_EVENT = (ValueError, RecursionError)
# Reports may lag behind on the disk by this time. A power cut loses no more.
SYNC_SECONDS = 1.0


class EventLog:
    """Writer of a sweep's event log. Its process must hold `lock.driver_lock` of the folder.

    The constructor does not touch the file. A line left incomplete by a kill is cut off before the
    next event is written. `end` is the number of bytes written.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.lag = path, SYNC_SECONDS
        self.end = _read(path).rfind(b"\n") + 1
        self._is_dirty, self._synced_at = False, time.monotonic()

    def append(self, *events: Event) -> list[Event]:
        """Writes events durably in one step, and returns them with their times.

        A time is not before the event's `time_ms`. Raises StorageError.
        """
        now = time.time_ns() // 1_000_000
        timed = [replace(event, time_ms=max(now, event.time_ms)) for event in events]
        self._write([event.to_line() for event in timed], sync=True)
        return timed

    def append_lines(self, lines: Iterable[str]) -> None:
        """Writes events as their processes have sent them. They are durable after `lag` seconds.

        The caller must call `tick` at least once per second, unless `lag` is 0. Raises
        StorageError.
        """
        self._write(list(lines), sync=False)
        self._is_dirty = True
        self.tick()

    def tick(self) -> None:
        """Makes written lines durable if `lag` seconds have passed. Raises StorageError."""
        if self._is_dirty and time.monotonic() - self._synced_at >= self.lag:
            self._write([], sync=True)

    def _write(self, lines: list[str], *, sync: bool) -> None:
        """Appends lines to the first `end` bytes of the file, which only its user can read.

        Bytes after `end` are left from a kill in the middle of a write, and are cut off. If the
        lines do not fit on the disk, none are written. With `sync` they survive a power cut.
        """
        data = "".join(f"{line}\n" for line in lines).encode()
        try:
            make_folder(self.path.parent)
            with open(self.path, "ab", buffering=0, opener=below) as file:
                file.truncate(self.end)
                # A single write for all data, in which a short count means a full disk.
                if file.write(data) < len(data):
                    file.truncate(self.end)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
                if sync:
                    os.fsync(file.fileno())
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        self.end += len(data)
        if sync:
            self._is_dirty, self._synced_at = False, time.monotonic()


def first_event(path: Path) -> Started | None:
    """Returns the start event of a sweep's log, None before it. Reads only this event.

    Raises SweepError if the log begins with anything else.
    """
    line = b""
    with suppress(FileNotFoundError), open(path, "rb", opener=below) as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    with suppress(*NO_EVENT):
        if isinstance(begun := from_line(line), Started) and begun.trial is None:
            return begun
    cure = "restore it from a backup, or start a new sweep with another --name"
    raise SweepError(f"{path} is damaged: it does not begin with the sweep's start; {cure}")


def read_events(path: Path) -> list[Event]:
    """Returns all complete events of a log, or no events if the file does not exist.

    Raises SweepError for a damaged line.
    """
    return [event for event, _ in tail(path)]


def by_trial(events: Iterable[Event]) -> dict[str | None, list[Event]]:
    """Groups events by their trials, in order of their first events. None is the sweep itself."""
    found: dict[str | None, list[Event]] = {}
    for event in events:
        found.setdefault(event.trial, []).append(event)
    return found


def tail(path: Path, offset: int = 0) -> list[tuple[Event, int]]:
    """Returns complete events from a byte offset on, each with the offset of the byte after it.

    Returns no events if the file does not exist. Raises SweepError for a complete line that is not
    an event of this version.
    """
    events = []
    for line in BytesIO(_read(path, offset)):
        if not line.endswith(b"\n"):
            break  # it is incomplete
        try:
            event = from_line(line)
        except NO_EVENT:
            what = f"its line at byte {offset} is not an event of this version"
            cure = "read it with the version that wrote it, or cut the file off there"
            raise SweepError(f"{path} is damaged: {what}; {cure}") from None
        offset += len(line)
        events.append((event, offset))
    return events


def ends_line(path: Path, offset: int) -> bool:
    """Returns True if a newline precedes an offset above 0, False if the file does not exist."""
    return _read(path, offset - 1, 1) == b"\n"


def num_events(path: Path, offset: int) -> int:
    """Returns the number of complete lines from a byte offset on, without parsing them."""
    return _read(path, offset).count(b"\n")


def _read(path: Path, offset: int = 0, size: int = -1) -> bytes:
    """Returns a part of a log, empty if the file does not exist."""
    with suppress(FileNotFoundError):
        return read_part(path, offset, size)
    return b""


def read_part(path: Path, offset: int, size: int) -> bytes:
    """Returns `size` bytes of a log from a byte offset on, all of them with -1."""
    with open(path, "rb", opener=below) as file:
        file.seek(offset)
        return file.read(size)


def identity(path: Path) -> str:
    """Returns 32 hexadecimal digits to identify a log by its first event.

    They are a tag of the MLflow runs, which a resumed sweep needs to find the runs. Therefore they
    must never change. They are a hash of the first event, as Python prints the parsed JSON, and of
    the length of its line.
    """
    with open(path, "rb", opener=below) as file:
        line = file.readline()
    return sha256(repr((json.loads(line), len(line))).encode()).hexdigest()[:32]
