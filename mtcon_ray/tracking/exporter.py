"""Export of a folder's event logs to another tracking program, afterwards or while it runs.

Writers for TensorBoard and W&B are in `tensorboard_files` and `wandb_runs`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

from mtcon_ray.errors import ResourceError, SweepError, UserError
from mtcon_ray.lock import is_driven
from mtcon_ray.paths import parent_log, trial_logs
from mtcon_ray.root_files import make_folder
from mtcon_ray.tracking.event_log import identity, tail
from mtcon_ray.tracking.events import Ended, Event, Reopened, Reported, Started

Program = Literal["tensorboard", "wandb"]

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ExportedRun:
    """One trial of a sweep, or a single training, as it is passed to another program.

    `identity` distinguishes it from all other runs and never changes. `settings` are the fixed and
    the searched fields by dotted path.
    """

    name: str
    group: str
    identity: str
    settings: dict[str, Any]
    start_ms: int


class RunWriter(Protocol):
    """Writer of one run; metrics of the same run that an earlier writer wrote are not doubled."""

    def write(self, report: Reported) -> None:
        """Writes the metrics of one epoch; the step is the epoch."""

    def flush(self) -> None:
        """Makes what was written visible to the other program."""

    def close(self, ended: Ended | None) -> None:
        """Ends the writer; `ended` is None if the run goes on or was killed."""


class Exporter(AbstractContextManager["Exporter"]):
    """Follower of the event logs of a sweep's trials, or of a single training.

    A context manager: on exit all writers are closed. `names` are the runs written so far.
    """

    def __init__(self, folder: Path, open_run: Callable[[ExportedRun], RunWriter]) -> None:
        self.folder = folder
        self.names: set[str] = set()
        self._open_run = open_run
        self._offsets: dict[str, int] = {}  # bytes that were exported, by event log name
        self._writers: dict[str, RunWriter] = {}

    def __exit__(self, *exception: object) -> None:
        while self._writers:
            self._writers.popitem()[1].close(None)

    def run(self, *, follow: bool) -> None:
        """Exports all events; with `follow` until no driver of the folder runs.

        Raises SweepError if there were none.
        """
        while True:
            # Before the events are read, so that the last ones are not missed.
            goes_on = follow and is_driven(self.folder)
            self.export()
            if not goes_on:
                break
            time.sleep(POLL_SECONDS)
        if not self.names:
            raise SweepError(f"{self.folder} must hold event logs to be exported, got none")

    def export(self) -> None:
        """Exports the events that are new since the last call."""
        for path in self._logs():
            name = path.stem
            events = tail(path, self._offsets.get(name, 0))
            if not events:
                continue
            if name not in self._writers:
                # All events again: the writer skips what an earlier one has written.
                events = tail(path)
                self._writers[name] = self._open(path, events[0][0])
            writer = self._writers[name]
            for event, end in events:
                self._offsets[name] = end
                if isinstance(event, Reported):
                    writer.write(event)
            writer.flush()
            if (ended := _end(event for event, _ in events)) is not None:
                self._writers.pop(name).close(ended)

    def _logs(self) -> list[Path]:
        if self.folder.parent.name != "sweeps":
            return [parent_log(self.folder)]
        return trial_logs(self.folder)

    def _open(self, path: Path, begun: Event) -> RunWriter:
        if not isinstance(begun, Started):
            raise SweepError(f"{path} must begin with a start, got {begun.kind}")
        parent = parent_log(self.folder)
        name = self.folder.name if path == parent else path.stem
        self.names.add(name)
        first = next((event for event, _ in tail(parent)), begun)
        fixed = first.settings if isinstance(first, Started) else None
        settings = {**(fixed or {}), **begun.params}
        run = ExportedRun(name, self.folder.name, identity(path), settings, begun.time_ms)
        return self._open_run(run)


def check_program(program: Program) -> None:
    """Raises UserError if the package of the program is not installed."""
    if find_spec(program) is None:
        raise UserError(
            f"--to {program} must have the package {program}, got none; "
            f"install 'mtcon-ray[{program}]'"
        )


def made_folder(out: Path) -> Path:
    """Returns the absolute folder after creating it. Raises ResourceError if that fails."""
    try:
        make_folder(out)
    except OSError as error:
        raise ResourceError(
            f"--out must be a folder that can be written, got {out} ({error.strerror})"
        ) from None
    return out.absolute()


def _end(events: Iterator[Event]) -> Ended | None:
    """Returns the end event if the run has not gone on since."""
    changes = [event for event in events if isinstance(event, Started | Ended | Reopened)]
    return changes[-1] if changes and isinstance(changes[-1], Ended) else None
