"""Export of a sweep to event files of TensorBoard, with a folder per trial."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # `hparams.api` needs TensorFlow
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mtcon_ray.base.paths import event_file
from mtcon_ray.base.root_files import check_no_links, check_own, remove
from mtcon_ray.errors import SweepError
from mtcon_ray.records import events
from mtcon_ray.records.event_log import by_trial, first_event, identity, read_events
from mtcon_ray.records.results import started

# TensorBoard reads all files of a folder with "tfevents" in their names. The ending distinguishes
# these files from the user's own.
ENDING = ".mtcon_ray"


def export_runs(folder: Path, out: Path) -> int:
    """Writes the epochs of a sweep's trials to `<out>/<trial>/`, and returns their number.

    During or after the training, and after the last epoch in the files of an earlier export. The
    epochs go to a new file. Files are never changed afterwards, because a TensorBoard in use would
    stop at a missing file. Files of another run of the same name are removed. Values are stored in
    float32. Raises SweepError if there are no trials.
    """
    log = event_file(folder)
    begun = first_event(log)
    fixed = (begun and begun.settings) or {}
    trials = {name: found for name, found in by_trial(read_events(log)).items() if name}
    for name, logged in trials.items():
        ending = f".{identity(log)[:24]}-{name.removeprefix('trial-')}{ENDING}"
        _write_run(out / name, ending, fixed, logged)
    if not trials:
        raise SweepError(f"{folder} has no events of trials to export")
    return len(trials)


def _write_run(
    folder: Path, ending: str, fixed: Mapping[str, Any], logged: Sequence[events.Event]
) -> None:
    check_no_links(folder)
    last = -1  # the settings are step 0
    for file in folder.glob(f"*tfevents*{ENDING}"):
        if file.name.endswith(ending):
            last = max(last, _last_step(file))
        else:
            remove(file)
    begun, _, _ = started(logged)
    values = {
        path: value if isinstance(value, bool | int | float) else str(value)
        for path, value in {**fixed, **begun.params}.items()
    }
    start = begun.time_ms / 1000
    settings = hparams_pb(values, trial_id=folder.name, start_time_secs=start)
    found = [Event(wall_time=start, step=0, summary=settings)]
    for report in logged:
        if isinstance(report, events.Reported):
            scalars = [Summary.Value(tag=k, simple_value=v) for k, v in report.metrics.items()]
            step, seconds = report.epoch, report.time_ms / 1000
            found.append(Event(wall_time=seconds, step=step, summary=Summary(value=scalars)))
    if new := [event for event in found if event.step > last]:
        writer = EventFileWriter(str(folder), filename_suffix=ending)
        for event in new:
            writer.add_event(event)
        writer.close()


def _last_step(file: Path) -> int:
    """Returns the last step of an event file, or -1 without steps. Skips an incomplete record."""
    check_own(file)
    found = LegacyEventFileLoader(str(file)).Load()
    return max((event.step for event in found if event.HasField("summary")), default=-1)
