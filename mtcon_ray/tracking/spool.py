"""The event log of one run as JSON lines; it is also the queue to the tracking server.

Each line is one event, a strict JSON object with `seq` (from 0), `kind` and `time_ms`:

    start     params, tags, optionally note and view; the first line, written once
    report    epoch, metrics; epochs strictly increase
    artifact  path, to
    end       status, tags, optionally note
    reopen    follows an end when the run is resumed
"""

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from mtcon_ray.errors import StorageError, SweepError

Event = dict[str, Any]
Kind = Literal["start", "artifact", "end", "reopen"]


class Spool:
    """Writer of one run's event log; several processes may write to it, one after the other.

    The constructor does not touch the file. A line that a kill left incomplete is cut off before
    the next event is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0  # bytes of complete lines read so far
        self._next_seq = 0
        self._last_epoch = 0
        self._ended = False

    @property
    def last_epoch(self) -> int:
        """Returns the last epoch reported, 0 before the first."""
        self._catch_up()
        return self._last_epoch

    def append(self, kind: Kind, **fields: Any) -> bool:
        """Writes an event durably; returns False for a `start` if the log already has one.

        Raises StorageError if the write fails.
        """
        self._catch_up()
        if kind == "start" and self._next_seq:
            return False
        self._write({"kind": kind, **fields})
        return True

    def append_report(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        """Writes the metrics of an epoch (from 1) durably and returns True.

        Writes nothing and returns False if the log has this epoch or a later one. The same holds
        after an end, because workers of a stopped trial may train on for a moment.
        Raises StorageError if the write fails.
        """
        self._catch_up()
        if epoch <= self._last_epoch or self._ended:
            return False
        self._write({"kind": "report", "epoch": epoch, "metrics": _encoded(metrics)})
        return True

    def events(self) -> list[Event]:
        """Returns all events so far. Raises SweepError for a damaged line."""
        return self.read(self.path)

    @staticmethod
    def read(path: Path) -> list[Event]:
        """Returns all complete events of a file, none if the file does not exist.

        Raises SweepError for a damaged line.
        """
        return [event for event, _ in tail(path)]

    def _catch_up(self) -> None:
        """Reads the events that this or another process has written since the last call."""
        for event, end in tail(self.path, self._size):
            self._size = end
            self._next_seq = event["seq"] + 1
            self._ended = event["kind"] == "end"
            if event["kind"] == "report":
                self._last_epoch = event["epoch"]

    def _write(self, event: Event) -> None:
        event = {"seq": self._next_seq, **event, "time_ms": time.time_ns() // 1_000_000}
        line = json.dumps(event, allow_nan=False).encode() + b"\n"
        try:
            self._append(line)
        except OSError as error:
            raise StorageError.of(self.path, error) from error
        self._catch_up()

    def _append(self, line: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # Bytes after the last complete line are left from a kill in the middle of a write.
            if os.fstat(descriptor).st_size > self._size:
                os.ftruncate(descriptor, self._size)
            # One write for the whole line; a short count means that the disk is full.
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            # A resume trusts this log over the study's journal, so it must survive a power cut.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def tail(path: Path, offset: int = 0) -> list[tuple[Event, int]]:
    """Returns complete events from a byte offset on, each with the offset of the byte after it.

    Returns no events if the file does not exist. Raises SweepError for a complete line that is not
    an event.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return []
    events = []
    # The part after the last newline is an incomplete line, or empty.
    for line in data.split(b"\n")[:-1]:
        try:
            event = json.loads(line)
            if event["kind"] == "report":
                event["metrics"] = {k: float(v) for k, v in event["metrics"].items()}
        except (ValueError, TypeError, KeyError):
            raise SweepError(
                f"{path} must hold one event a line, got something else at byte {offset}; "
                "cut the file off there"
            ) from None
        offset += len(line) + 1
        events.append((event, offset))
    return events


def num_events(path: Path, offset: int) -> int:
    """Returns the number of complete lines from a byte offset on, without parsing them."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().count(b"\n")


def _encoded(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Returns metrics as strict JSON: JSON has no NaN, so "nan", "inf" and "-inf" are strings."""
    values = {name: float(value) for name, value in metrics.items()}
    return {name: v if math.isfinite(v) else str(v) for name, v in values.items()}
