"""Export of a sweep's epochs to another tracking program, during or after the training.

The writers are in `tensorboard_files` and `wandb_runs`.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import first_event, identity, tail
from mtcon_ray.records.events import Ended, Event, Reopened, Reported, Started

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ExportedRun:
    """A trial of a sweep, as passed to another program.

    `identity` distinguishes the run from all other runs and never changes. `settings` are the fixed
    and the searched fields by dotted path.
    """

    name: str
    group: str
    identity: str
    settings: dict[str, Any]
    start_ms: int


class RunWriter(Protocol):
    """Writer of a run. It skips epochs written by an earlier writer of the run."""

    def write(self, report: Reported) -> None:
        """Writes the metrics of an epoch, visible at once, with the epoch as the step."""

    def close(self, ended: Ended | None) -> None:
        """Ends the writer. `ended` is None if the run continues or was killed."""


class Exporter(AbstractContextManager["Exporter"]):
    """Follower of a sweep's event log.

    A context manager: on exit all writers are closed. `names` are the runs written so far.
    """

    def __init__(self, folder: Path, open_run: Callable[[ExportedRun], RunWriter]) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self._open_run = open_run
        self._offset = 0
        self._started: dict[str, Started] = {}
        self._writers: dict[str, RunWriter] = {}

    def __exit__(self, *exception: object) -> None:
        while self._writers:
            self._writers.popitem()[1].close(None)

    def run(self, *, follow: bool) -> None:
        """Exports all events. With `follow`, continues until no driver of the folder runs.

        Raises SweepError if there are no events.
        """
        while True:
            # Before the events are read, or the last events could be missed.
            continues = follow and is_driven(self.folder)
            self.export()
            if not continues:
                break
            time.sleep(POLL_SECONDS)
        if not self.names:
            raise SweepError(f"{self.folder} has no events of trials to export")

    def export(self) -> None:
        """Exports the new events since the last call."""
        events = tail(event_file(self.folder), self._offset)
        ends: dict[str, Ended] = {}
        for event, end in events:
            self._offset = end
            if event.trial is not None:
                self._take(event.trial, event, ends)
        # A trial that ended and was resumed since the last call continues in the same run.
        for name, ended in ends.items():
            self._writers.pop(name).close(ended)

    def _take(self, name: str, event: Event, ends: dict[str, Ended]) -> None:
        match event:
            case Started():
                self._started[name] = event
            case Reopened():
                ends.pop(name, None)
        if not isinstance(event, Started | Reopened | Reported | Ended):
            return
        if name not in self._writers:
            self._writers[name] = self._open_run(self._described(name))
        if isinstance(event, Reported):
            self._writers[name].write(event)
        elif isinstance(event, Ended):
            ends[name] = event

    def _described(self, name: str) -> ExportedRun:
        log = event_file(self.folder)
        begun, sweep = self._started.get(name), first_event(log)
        if begun is None:
            raise SweepError(f"{log} is damaged: it lacks the start of {name}")
        settings = {**((sweep.settings if sweep else None) or {}), **begun.params}
        self.names.add(name)
        key = f"{identity(log)[:24]}-{name.removeprefix('trial-')}"
        return ExportedRun(name, self.folder.name, key, settings, begun.time_ms)
