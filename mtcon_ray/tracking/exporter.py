"""Export of a sweep's epochs to another tracking program, during or after the training.

The writers are in `tensorboard_files` and `wandb_runs`. They skip the epochs of an earlier export.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import by_trial, first_event, identity, read_events
from mtcon_ray.records.events import Ended, Reported, last_change
from mtcon_ray.records.results import started


@dataclass(frozen=True)
class ExportedRun:
    """A trial of a sweep, as passed to another program.

    `identity` distinguishes the run from all other runs and never changes. `settings` are the fixed
    and the searched fields by dotted path. `ended` is None if the trial runs or was killed.
    """

    name: str
    group: str
    identity: str
    settings: dict[str, Any]
    start_ms: int
    reports: tuple[Reported, ...]
    ended: Ended | None


def export_runs(folder: Path, write: Callable[[ExportedRun], None]) -> int:
    """Calls `write` with each trial of a sweep and returns their number.

    Raises SweepError if there are none.
    """
    log = event_file(folder)
    begun = first_event(log)
    fixed = (begun and begun.settings) or {}
    trials = {name: found for name, found in by_trial(read_events(log)).items() if name}
    for name, events in trials.items():
        (start, _, _), last = started(events), last_change(events)
        run = ExportedRun(
            name=name,
            group=folder.name,
            identity=f"{identity(log)[:24]}-{name.removeprefix('trial-')}",
            settings={**fixed, **start.params},
            start_ms=start.time_ms,
            reports=tuple(event for event in events if isinstance(event, Reported)),
            ended=last if isinstance(last, Ended) else None,
        )
        write(run)
    if not trials:
        raise SweepError(f"{folder} has no events of trials to export")
    return len(trials)
