"""Event files of TensorBoard, with a folder per run."""

from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.summary_v2 import hparams_pb  # `hparams.api` needs TensorFlow
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from mtcon_ray.base.root_files import check_no_links, check_own, remove
from mtcon_ray.records.events import Ended, Reported
from mtcon_ray.tracking.exporter import ExportedRun

# TensorBoard reads all files of a folder with "tfevents" in their names. The ending distinguishes
# these files from the user's own.
ENDING = ".mtcon_ray"


class TensorBoardRun:
    """Writer of a run's epochs to `<out>/<name>/`, after the last epoch in its files.

    Each writer begins its own file. Files are never changed afterwards, because a TensorBoard in
    use would stop at a missing file. Files of another run of the same name are removed. Values are
    stored in float32.
    """

    def __init__(self, out: Path, run: ExportedRun) -> None:
        self._folder = out / run.name
        check_no_links(self._folder)
        self._ending = f".{run.identity}{ENDING}"
        self._writer: EventFileWriter | None = None
        self._last_step = -1  # the settings are step 0
        for file in self._folder.glob(f"*tfevents*{ENDING}"):
            if file.name.endswith(self._ending):
                self._last_step = max(self._last_step, _last_step(file))
            else:
                remove(file)
        values = {
            path: value if isinstance(value, bool | int | float) else str(value)
            for path, value in run.settings.items()
        }
        start = run.start_ms / 1000
        self._add(start, 0, hparams_pb(values, trial_id=run.name, start_time_secs=start))

    def write(self, report: Reported) -> None:
        """Adds a scalar per metric, unless the files have this epoch already."""
        values = [Summary.Value(tag=k, simple_value=v) for k, v in report.metrics.items()]
        self._add(report.time_ms / 1000, report.epoch, Summary(value=values))
        if self._writer is not None:
            self._writer.flush()

    def close(self, ended: Ended | None) -> None:
        """Closes the file. TensorBoard shows no statuses."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, seconds: float, step: int, summary: Summary) -> None:
        if step <= self._last_step:
            return
        if self._writer is None:
            self._writer = EventFileWriter(str(self._folder), filename_suffix=self._ending)
        self._writer.add_event(Event(wall_time=seconds, step=step, summary=summary))
        self._last_step = step


def _last_step(file: Path) -> int:
    """Returns the last step of an event file, or -1 without steps. Skips an incomplete record."""
    check_own(file)
    events = LegacyEventFileLoader(str(file)).Load()
    return max((event.step for event in events if event.HasField("summary")), default=-1)
