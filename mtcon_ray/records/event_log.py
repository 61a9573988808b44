"""The event log of a run as JSON lines, which is also the queue to the tracking server."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from io import FileIO
from pathlib import Path

from mtcon_ray.base.root_files import below, make_folder
from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.records.events import (
    Artifact,
    Ended,
    Event,
    Reported,
    Started,
    UnknownKindError,
    from_json,
)

# A writer waits 10 s for the lock, then writes without it: the holder hangs, or its node was lost
# with the lock of a network file system.
LOCK_ATTEMPTS, LOCK_PAUSE = 1000, 0.01


class EventLog:
    """Writer of a run's event log, to which several processes may write in turn.

    The constructor does not touch the file. A line left incomplete by a kill is cut off before the
    next event is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0  # bytes of complete lines read so far
        self._next_seq = 0
        self._last_epoch = 0
        self._last_ms = 0
        self._ended = False
        self._reported_at: float | None = None  # monotonic time of this object's last report

    @property
    def last_epoch(self) -> int:
        """Returns the last epoch reported, 0 before the first."""
        self._catch_up()
        return self._last_epoch

    def append(self, event: Event) -> bool:
        """Writes an event durably and returns True.

        Writes nothing and returns False for a second start, for a report if the log has its epoch
        or a later epoch, and for a report after an end, because workers of a stopped trial may
        continue for a moment. Raises StorageError if the write fails.
        """
        with _only_writer(self.path):
            return self._append(event)

    def _append(self, event: Event) -> bool:
        self._catch_up()
        match event:
            case Started() if self._next_seq:
                return False
            case Reported() if event.epoch <= self._last_epoch or self._ended:
                return False
        # The clock may be set back, and MLflow would then show negative durations of runs.
        time_ms = max(time.time_ns() // 1_000_000, self._last_ms)
        event = replace(event, seq=self._next_seq, time_ms=time_ms)
        now = time.monotonic()
        if isinstance(event, Reported) and self._reported_at is not None:
            event = replace(event, seconds=round(now - self._reported_at, 3))
        line = json.dumps(event.to_json(), allow_nan=False).encode() + b"\n"
        # A resume trusts this log over the study's journal, so it must survive a power cut.
        append_durably(self.path, self._size, line)
        self._catch_up()
        if isinstance(event, Reported):
            self._reported_at = now
        return True

    def events(self) -> list[Event]:
        """Returns all events so far. Raises SweepError for a damaged line."""
        return self.read(self.path)

    @staticmethod
    def read(path: Path) -> list[Event]:
        """Returns all complete events of a file, or no events if the file does not exist.

        Raises SweepError for a damaged line.
        """
        return [event for event, _ in tail(path)]

    def _catch_up(self) -> None:
        """Reads the events written since the last call by this or another process."""
        for event, end in tail(self.path, self._size):
            self._size = end
            self._next_seq = event.seq + 1
            self._last_ms = event.time_ms
            if isinstance(event, Reported):
                self._last_epoch = event.epoch
            elif not isinstance(event, Artifact):  # artifacts may follow the end
                self._ended = isinstance(event, Ended)
                self._reported_at = None  # a pause is not training


def append_durably(path: Path, end: int, data: bytes) -> None:
    """Appends data to the first `end` bytes of a file, readable only by its user.

    Bytes after `end` are left from a kill in the middle of a write, and are cut off. The data
    survive a power cut. Raises StorageError, perhaps after writing a part of the data.
    """
    try:
        with _opened(path) as file:
            file.truncate(end)
            # A single write for all data, in which a short count means a full disk.
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError.of(path, error) from error


def _opened(path: Path) -> FileIO:
    """Opens a file for appending. Creates the file, readable only by its user, and its folder."""
    make_folder(path.parent)
    return open(path, "ab", buffering=0, opener=below)


@contextmanager
def _only_writer(path: Path) -> Iterator[None]:
    """Holds the exclusive lock of an event log, if available. Raises StorageError.

    Without the lock a writer could read the size, and then cut off the next line of another writer:
    workers of a stopped trial may report while the driver writes the trial's end. Readers need no
    lock, because complete lines never change.
    """
    try:
        file = _opened(path)
    except OSError as error:
        raise StorageError.of(path, error) from error
    with file:
        for _ in range(LOCK_ATTEMPTS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(LOCK_PAUSE)
            except OSError:  # some network file systems have no locks, and training must continue
                break
            else:
                break
        yield


def tail(path: Path, offset: int = 0) -> list[tuple[Event, int]]:
    """Returns complete events from a byte offset on, each with the offset of the byte after it.

    Returns no events if the file does not exist. Raises SweepError for a complete line that is not
    an event of this version.
    """
    try:
        with open(path, "rb", opener=below) as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return []
    events = []
    # The part after the last newline is an incomplete line, or empty.
    for line in data.split(b"\n")[:-1]:
        try:
            event = from_json(json.loads(line))
        except UnknownKindError as error:
            raise SweepError(
                f"{path} has an event of kind {error} at byte {offset}, which this version does "
                "not know: a later version of mtcon-ray wrote it; read it with that version"
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise SweepError(
                f"{path} is damaged: its line at byte {offset} is not an event; cut the file off "
                "there"
            ) from None
        offset += len(line) + 1
        events.append((event, offset))
    return events


def is_torn(path: Path) -> bool:
    """Returns True if the last line of a file has no line break, after a kill or a full disk."""
    size = path.stat().st_size
    return size > 0 and not ends_line(path, size)


def ends_line(path: Path, offset: int) -> bool:
    """Returns True if a newline precedes an offset above 0, False if the file does not exist."""
    try:
        with open(path, "rb", opener=below) as file:
            file.seek(offset - 1)
            return file.read(1) == b"\n"
    except FileNotFoundError:
        return False


def cut_torn_line(path: Path) -> None:
    """Removes a last line without a line break. Raises StorageError."""
    if is_torn(path):
        append_durably(path, path.read_bytes().rfind(b"\n") + 1, b"")


def num_events(path: Path, offset: int) -> int:
    """Returns the number of complete lines from a byte offset on, without parsing them."""
    with open(path, "rb", opener=below) as file:
        file.seek(offset)
        return file.read().count(b"\n")


def identity(path: Path) -> str:
    """Returns 32 hexadecimal digits to identify a log by its first event.

    They are a tag of the MLflow runs, which a resumed sweep needs to find the runs. Therefore they
    must never change. They are a hash of the first event, as Python prints the parsed JSON, and of
    the length of its line.
    """
    with open(path, "rb", opener=below) as file:
        line = file.readline()
    return sha256(repr((json.loads(line), len(line))).encode()).hexdigest()[:32]
