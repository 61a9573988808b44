"""One run as JSON lines: its record on disk, and at once its queue to the tracking server.

Events have `seq` (from 0), `kind` and `time_ms`, one strict JSON object a line:

    start     params, tags, and perhaps note, view: the first line, written once
    report    epoch, metrics: epochs strictly increase
    artifact  path, to
    end       status, tags, and perhaps note
    reopen    after an end, when the run goes on
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
    """Appends events to one run's file; several processes may, one after the other.

    Constructing touches nothing. A line torn by a kill is cut off before the next is written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size = 0  # bytes of whole lines read so far
        self._next_seq = 0
        self._last_epoch = 0
        self._ended = False

    @property
    def last_epoch(self) -> int:
        """The last epoch reported, 0 before the first."""
        self._catch_up()
        return self._last_epoch

    def append(self, kind: Kind, **fields: Any) -> bool:
        """Write an event durably; False for a `start` that is already there.

        Raises StorageError where the disk takes none.
        """
        self._catch_up()
        if kind == "start" and self._next_seq:
            return False
        self._write({"kind": kind, **fields})
        return True

    def append_report(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        """Write the metrics of an epoch (from 1) durably; False if it or a later one is there.

        False also behind an end: workers of a trial that was stopped may train on for a moment.
        Raises StorageError where the disk takes none.
        """
        self._catch_up()
        if epoch <= self._last_epoch or self._ended:
            return False
        self._write({"kind": "report", "epoch": epoch, "metrics": _encoded(metrics)})
        return True

    def events(self) -> list[Event]:
        """All events so far."""
        return self.read(self.path)

    @staticmethod
    def read(path: Path) -> list[Event]:
        """All whole events of a file, none if it is not there. Raises SweepError."""
        return [event for event, _ in tail(path)]

    def _catch_up(self) -> None:
        """Read what this or another process has written since the last look."""
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
            if os.fstat(descriptor).st_size > self._size:
                os.ftruncate(descriptor, self._size)
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def tail(path: Path, offset: int = 0) -> list[tuple[Event, int]]:
    """Whole events from a byte offset on, each with the offset behind it; none without a file.

    Raises SweepError for a whole line that is no event.
    """
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return []
    events = []
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
    """Whole lines from a byte offset on, without reading what they say."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.read().count(b"\n")


def _encoded(metrics: Mapping[str, float]) -> dict[str, float | str]:
    """Metrics as strict JSON, which has no NaN: "nan", "inf" and "-inf" instead."""
    values = {name: float(value) for name, value in metrics.items()}
    return {name: v if math.isfinite(v) else str(v) for name, v in values.items()}
