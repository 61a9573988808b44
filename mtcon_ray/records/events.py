"""Events of a sweep as its event log stores them, with a frozen class per kind.

The JSON form is format version 1: the keys `kind`, `trial`, the fields of the class, `time_ms`.
Fields that are None are omitted.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

KINDS: dict[str, type["Event"]] = {}


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    `trial` names the trial, None for an event of the sweep itself. `time_ms` is the Unix time of
    the event in milliseconds.
    """

    kind: ClassVar[str]

    trial: str | None = None
    time_ms: int = 0

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        KINDS[kind] = cls

    def to_json(self) -> dict[str, Any]:
        """Returns the event as strict JSON."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in FRAME}
        framed = {"trial": self.trial, **own, "time_ms": self.time_ms}
        given = {name: value for name, value in framed.items() if value is not None}
        return {"kind": self.kind, **given}

    def to_line(self) -> str:
        """Returns the event as a line of an event log, without the line break."""
        return json.dumps(self.to_json(), allow_nan=False)


FRAME = {f.name for f in fields(Event)}
# The type of each field in JSON, by its name in all kinds.
TYPES: dict[str, type] = {
    **dict.fromkeys(("time_ms", "epoch"), int),
    **dict.fromkeys(("params", "tags", "settings", "metrics"), dict),
    **dict.fromkeys(("trial", "note", "path", "to", "status", "reason", "source"), str),
    **dict.fromkeys(("seconds", "value"), float),
    "counts": bool,
}


@dataclass(frozen=True, kw_only=True)
class Started(Event, kind="start"):
    """Start of the sweep, which is the first event of a log, or of a trial. Written once for each.

    `params` are the searched fields, `settings` further fields for columns in a table of runs.
    """

    params: Mapping[str, Any]
    tags: Mapping[str, str]
    note: str | None = None
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Reported(Event, kind="report"):
    """Metrics of a completed epoch, counted from 1. The epochs of a trial strictly increase.

    The trial's process makes the event: `time_ms` is a time of its clock, and `seconds` is the time
    of the epoch, measured by a monotonic clock. The first report of each process has `tags`, with
    the device and the precision. In the sweep's own reports `epoch` counts the reports.
    """

    epoch: int
    metrics: Mapping[str, float]
    tags: Mapping[str, str] | None = None
    seconds: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns the event as strict JSON, with "nan", "inf" and "-inf" for non-finite values."""
        values = {name: float(value) for name, value in self.metrics.items()}
        strict = {name: v if math.isfinite(v) else str(v) for name, v in values.items()}
        return {**super().to_json(), "metrics": strict}


@dataclass(frozen=True, kw_only=True)
class Lost(Event, kind="lost"):
    """Loss of a trial's process. The trial is tried again, up to `search.max_failures` times.

    `counts` is False if nothing in the trial or on its node was wrong, as with a preempted node.
    """

    reason: str
    counts: bool = True


@dataclass(frozen=True, kw_only=True)
class Artifact(Event, kind="artifact"):
    """New artifact of the run: the file at `path`, in the folder `to`."""

    path: str
    to: str


@dataclass(frozen=True, kw_only=True)
class Ended(Event, kind="end"):
    """End of the sweep or a trial with a status of MLflow: FINISHED, FAILED or KILLED."""

    status: str
    tags: Mapping[str, str]
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Reopened(Event, kind="reopen"):
    """Resume of the sweep or a trial after an end, or after a kill without an end event."""


@dataclass(frozen=True, kw_only=True)
class Earlier(Event, kind="earlier"):
    """A finished trial of an earlier sweep, from which the sampler starts (`search.start_from`).

    `source` is "<sweep>/<trial>", `params` are its searched fields, `value` is its objective.
    """

    source: str
    params: Mapping[str, Any]
    value: float


class UnknownKindError(ValueError):
    """Error for an event of a kind unknown to this version."""


def from_json(raw: Mapping[str, Any]) -> Event:
    """Returns the event of a line of an event log, without the keys unknown to its class.

    Raises UnknownKindError for an event of a later version, and KeyError, TypeError or ValueError
    if it is not an event.
    """
    name = raw["kind"]
    # All versions write the time, so a line without a time is damaged.
    if isinstance(name, str) and name not in KINDS and isinstance(raw["time_ms"], int):
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


def last_change(events: Sequence[Event]) -> Started | Ended | Reopened | None:
    """Returns the last event that changed the status of a sweep or trial, or None if it was lost.

    A complete list begins with such an event.
    """
    return next((e for e in reversed(events) if isinstance(e, Started | Ended | Reopened)), None)
