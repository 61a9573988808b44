"""Event files of TensorBoard, with a folder per run."""

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # `hparams.api` needs TensorFlow
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mtcon_ray.base.root_files import check_no_links, check_own, remove
from mtcon_ray.tracking.exporter import ExportedRun

# TensorBoard reads all files of a folder with "tfevents" in their names. The ending distinguishes
# these files from the user's own.
ENDING = ".mtcon_ray"


def write_run(out: Path, run: ExportedRun) -> None:
    """Writes a run's epochs to `<out>/<name>/`, after the last epoch in its files.

    The epochs go to a new file. Files are never changed afterwards, because a TensorBoard in use
    would stop at a missing file. Files of another run of the same name are removed. Values are
    stored in float32.
    """
    folder, ending = out / run.name, f".{run.identity}{ENDING}"
    check_no_links(folder)
    last = -1  # the settings are step 0
    for file in folder.glob(f"*tfevents*{ENDING}"):
        if file.name.endswith(ending):
            last = max(last, _last_step(file))
        else:
            remove(file)
    values = {
        path: value if isinstance(value, bool | int | float) else str(value)
        for path, value in run.settings.items()
    }
    start = run.start_ms / 1000
    settings = hparams_pb(values, trial_id=run.name, start_time_secs=start)
    events = [Event(wall_time=start, step=0, summary=settings)]
    for report in run.reports:
        scalars = [Summary.Value(tag=k, simple_value=v) for k, v in report.metrics.items()]
        summary = Summary(value=scalars)
        events.append(Event(wall_time=report.time_ms / 1000, step=report.epoch, summary=summary))
    if new := [event for event in events if event.step > last]:
        writer = EventFileWriter(str(folder), filename_suffix=ending)
        for event in new:
            writer.add_event(event)
        writer.close()


def _last_step(file: Path) -> int:
    """Returns the last step of an event file, or -1 without steps. Skips an incomplete record."""
    check_own(file)
    events = LegacyEventFileLoader(str(file)).Load()
    return max((event.step for event in events if event.HasField("summary")), default=-1)
