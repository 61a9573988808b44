"""Events of a sweep as its event log stores them, with a frozen class per kind.

The JSON form is format version 1: the fields of the class, without those that are None.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, Strict, TypeAdapter
from pydantic.dataclasses import dataclass

from mtcon_ray.base.paths import TRIAL

Integer = Annotated[int, Strict()]
# JSON has no non-finite numbers, so they are the texts "nan", "inf" and "-inf".
Number = Annotated[float, PlainSerializer(lambda v: v if math.isfinite(v) else str(v))]
# Names become parts of paths, so only names given by this package are accepted.
TrialName = Annotated[str, Field(pattern=f"^{TRIAL.pattern}$")]


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events.

    `trial` names the trial, None for an event of the sweep itself. `time_ms` is the Unix time of
    the event in milliseconds.
    """

    kind: str = ""
    trial: TrialName | None = None
    time_ms: Integer = 0

    def to_line(self) -> str:
        """Returns the event as a line of an event log: strict JSON, without the line break."""
        return json.dumps(EVENT.dump_python(self, exclude_none=True), allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """Start of the sweep, which is the first event of a log, or of a trial. Written once for each.

    `params` are the searched fields, `settings` further fields for columns in a table of runs.
    """

    kind: Literal["start"] = "start"
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    settings: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Reported(Event):
    """Metrics of a completed epoch, counted from 1. The epochs of a trial strictly increase.

    The trial's process makes the event: `time_ms` is a time of its clock, and `seconds` is the time
    of the epoch, measured by a monotonic clock. The first report of each process has `tags`, with
    the device and the precision. In the sweep's own reports `epoch` counts the reports.
    """

    kind: Literal["report"] = "report"
    epoch: Integer
    metrics: Mapping[str, Number]
    tags: Mapping[str, str] | None = None
    seconds: Annotated[float, Field(allow_inf_nan=False)] | None = None


@dataclass(frozen=True, kw_only=True)
class Lost(Event):
    """Loss of a trial's process. The trial is tried again, up to `search.max_failures` times.

    `counts` is False if nothing in the trial or on its node was wrong, as with a preempted node.
    """

    kind: Literal["lost"] = "lost"
    reason: str
    counts: bool = True


@dataclass(frozen=True, kw_only=True)
class Artifact(Event):
    """New artifact of the run: the file at `path`, in the folder `to` of the run."""

    kind: Literal["artifact"] = "artifact"
    path: str
    # A log may be a stranger's, and MLflow's clients differ in which paths with ".." they reject.
    to: Literal["", "checkpoints", "report"]


@dataclass(frozen=True, kw_only=True)
class Ended(Event):
    """End of the sweep or a trial with a status of MLflow: FINISHED, FAILED or KILLED."""

    kind: Literal["end"] = "end"
    status: str
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Reopened(Event):
    """Resume of the sweep or a trial after an end, or after a kill without an end event."""

    kind: Literal["reopen"] = "reopen"


@dataclass(frozen=True, kw_only=True)
class Earlier(Event):
    """A finished trial of an earlier sweep, from which the sampler starts (`search.start_from`).

    `source` is "<sweep>/<trial>", `params` are its searched fields, `value` is its objective.
    """

    kind: Literal["earlier"] = "earlier"
    source: str
    params: Mapping[str, Any]
    value: float


Kinds = Started | Reported | Lost | Artifact | Ended | Reopened | Earlier
EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[Kinds, Field(discriminator="kind")])


def from_line(line: str | bytes) -> Event:
    """Returns the event of a line of an event log, without the keys unknown to its class.

    Raises ValueError or RecursionError if it is not an event of this version.
    """
    try:  # a third of the time of Python's reader
        event: Event = EVENT.validate_json(line)
    except ValueError:  # also for half a surrogate pair, which only Python's reader takes
        event = EVENT.validate_python(json.loads(line))
    return event


def last_change(events: Sequence[Event]) -> Started | Ended | Reopened | None:
    """Returns the last event that changed the status of a sweep or trial, or None if it was lost.

    A complete list begins with such an event.
    """
    return next((e for e in reversed(events) if isinstance(e, Started | Ended | Reopened)), None)
