"""Events of a run as its event log stores them, with a frozen class per kind.

The JSON form is format version 1: the keys `seq`, `kind`, the fields of the class, `time_ms`.
Fields that are None are omitted.
"""

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

KINDS: dict[str, type["Event"]] = {}


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    The event log sets `seq`, which counts the events of a log from 0, and `time_ms`, the Unix time
    of the write in milliseconds. The time never decreases within a log.
    """

    kind: ClassVar[str]

    seq: int = 0
    time_ms: int = 0

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        KINDS[kind] = cls

    def to_json(self) -> dict[str, Any]:
        """Returns the event as strict JSON."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in FRAME}
        given = {name: value for name, value in own.items() if value is not None}
        return {"seq": self.seq, "kind": self.kind, **given, "time_ms": self.time_ms}


FRAME = {f.name for f in fields(Event)}
# The type of each field in JSON, by its name in all kinds.
TYPES: dict[str, type] = {
    **dict.fromkeys(("seq", "time_ms", "epoch"), int),
    **dict.fromkeys(("params", "tags", "settings", "metrics"), dict),
    **dict.fromkeys(("note", "path", "to", "status"), str),
    "seconds": float,
}


@dataclass(frozen=True, kw_only=True)
class Started(Event, kind="start"):
    """Start of the run, which is the first event of a log and written once.

    `params` are the searched fields, `settings` further fields for columns in a table of runs.
    """

    params: Mapping[str, Any]
    tags: Mapping[str, str]
    note: str | None = None
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Reported(Event, kind="report"):
    """Metrics of a completed epoch, counted from 1. The epochs of a log strictly increase.

    The first report of each process has `tags`, with the device and the precision. The others have
    `seconds`, the time since the previous report, which the event log sets by a monotonic clock.
    """

    epoch: int
    metrics: Mapping[str, float]
    tags: Mapping[str, str] | None = None
    seconds: float | None = None

    def seconds_since(self, before: Event) -> float:
        """Returns the seconds since the previous event in the log, at least 0."""
        if self.seconds is not None:
            return self.seconds
        # The driver writes the start, and its clock may be ahead of the trial's node.
        return max(0, self.time_ms - before.time_ms) / 1000

    def to_json(self) -> dict[str, Any]:
        """Returns the event as strict JSON, with "nan", "inf" and "-inf" for non-finite values."""
        values = {name: float(value) for name, value in self.metrics.items()}
        strict = {name: v if math.isfinite(v) else str(v) for name, v in values.items()}
        return {**super().to_json(), "metrics": strict}


@dataclass(frozen=True, kw_only=True)
class Artifact(Event, kind="artifact"):
    """New artifact of the run: the file at `path`, in the folder `to`."""

    path: str
    to: str


@dataclass(frozen=True, kw_only=True)
class Ended(Event, kind="end"):
    """End of the run with a status of MLflow: FINISHED, FAILED or KILLED."""

    status: str
    tags: Mapping[str, str]
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reopened(Event, kind="reopen"):
    """Resume of the run after an end, or after a kill without an end event."""


class UnknownKindError(ValueError):
    """Error for an event of a kind unknown to this version."""


def from_json(raw: Mapping[str, Any]) -> Event:
    """Returns the event of a line of an event log, without the keys unknown to its class.

    Raises UnknownKindError for an event of a later version, and KeyError, TypeError or ValueError
    if it is not an event.
    """
    name = raw["kind"]
    # All versions number their events, so a line without a number is damaged.
    if isinstance(name, str) and name not in KINDS and isinstance(raw["seq"], int):
        raise UnknownKindError(f"{name!r:.100}")
    kind = KINDS[name]
    required = [f.name for f in fields(kind) if f.default is MISSING]
    values = {f.name: raw[f.name] for f in fields(kind) if f.name in raw or f.name in required}
    for name, value in values.items():
        if not isinstance(value, TYPES[name]) and (value is not None or name in required):
            raise TypeError(f"{name} must be of {TYPES[name]}, got {value!r}")
    if kind is Reported:
        values["metrics"] = {name: float(value) for name, value in values["metrics"].items()}
    return kind(**values)


def last_change(events: list[Event]) -> Started | Ended | Reopened | None:
    """Returns the last event that changed the run's status, or None if it was lost.

    A complete log begins with such an event.
    """
    return next((e for e in reversed(events) if isinstance(e, Started | Ended | Reopened)), None)
