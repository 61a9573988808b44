"""The events of one run in a sweep's event log: of the sweep itself ("parent") or of a trial."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

from mtcon_ray.base.paths import event_file
from mtcon_ray.records.event_log import EventLog, by_trial, read_events
from mtcon_ray.records.events import Artifact, Event, Reported

Place = Literal["", "checkpoints", "report"]


class RunLog:
    """Writer and reader of the events of one run."""

    def __init__(self, folder: Path, name: str = "parent") -> None:
        self.path = event_file(folder)
        self.trial = None if name == "parent" else name

    def append(self, event: Event) -> None:
        EventLog(self.path).append(replace(event, trial=self.trial))

    def report(self, *epochs: int, **metrics: float) -> None:
        """Appends the reports of epochs, by default with a loss of 1."""
        for epoch in epochs:
            self.append(Reported(epoch=epoch, metrics=metrics or {"loss": 1.0}))

    def add_file(self, name: str, content: str = "network", to: Place = "") -> None:
        """Writes a file of the sweep and appends the event by which it is sent."""
        path = self.path.with_name(name)
        path.write_text(content)
        self.append(Artifact(path=str(path), to=to))

    def events(self) -> list[Event]:
        return by_trial(read_events(self.path)).get(self.trial, [])

    def remove(self) -> None:
        """Removes all events of the run from the log."""
        left = [e.to_line() for e in read_events(self.path) if e.trial != self.trial]
        self.path.write_text("".join(f"{line}\n" for line in left))
