"""Export of a folder's event logs to another tracking program, during or after the training.

The writers are in `tensorboard_files` and `wandb_runs`.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.paths import parent_log, sweeps_folder, trial_logs
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import identity, tail
from mtcon_ray.records.events import Ended, Reported, Started, last_change

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ExportedRun:
    """A trial of a sweep, or a single training, as passed to another program.

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
    """Follower of the event logs of a sweep's trials, or of a single training.

    A context manager: on exit all writers are closed. `names` are the runs written so far.
    """

    def __init__(self, folder: Path, open_run: Callable[[ExportedRun], RunWriter]) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self._open_run = open_run
        self._offsets: dict[Path, int] = {}  # exported bytes
        self._writers: dict[Path, RunWriter] = {}

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
            raise SweepError(f"{self.folder} has no event logs to export")

    def export(self) -> None:
        """Exports the new events since the last call."""
        is_sweep = self.folder.parent.name == sweeps_folder(Path()).name
        for path in trial_logs(self.folder) if is_sweep else [parent_log(self.folder)]:
            events = tail(path, self._offsets.get(path, 0))
            if not events:
                continue
            if path not in self._writers:
                # All events again, because the writer skips epochs of an earlier writer.
                events = tail(path)
                self._writers[path] = self._open_run(self._described(path))
            for event, end in events:
                self._offsets[path] = end
                if isinstance(event, Reported):
                    self._writers[path].write(event)
            if isinstance(ended := last_change([event for event, _ in events]), Ended):
                self._writers.pop(path).close(ended)

    def _described(self, path: Path) -> ExportedRun:
        parent = parent_log(self.folder)
        begun, fixed = tail(path)[0][0], [event for event, _ in tail(parent)[:1]]
        if not isinstance(begun, Started):
            raise SweepError(f"{path} is damaged: it begins with {begun.kind} instead of started")
        settings = dict(begun.params)
        if fixed and isinstance(fixed[0], Started):
            settings = {**(fixed[0].settings or {}), **settings}
        name = self.folder.name if path == parent else path.stem
        self.names.add(name)
        return ExportedRun(name, self.folder.name, identity(path), settings, begun.time_ms)
