"""One tracked training without Ray.

<root>/runs/<name>/ holds spec.yaml, plan.json, model.pt, predictions.npz, while it is not done
last.pt and last.previous.pt, and spool/parent.jsonl, which is the run's record and what is sent to
MLflow.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.data.dataset import Dataset, fetch_places, open_dataset
from mtcon_ray.errors import StorageError, SweepError, nearest
from mtcon_ray.local import choose_device, this_machine
from mtcon_ray.lock import driver_lock
from mtcon_ray.paths import (
    PLAN_FILE,
    SPEC_FILE,
    cache_folder,
    last_name,
    list_folders,
    new_name,
    parent_log,
    run_folder,
    runs_folder,
)
from mtcon_ray.planning import check_data, fetch_weights, make_plan, prepare_root
from mtcon_ray.recorded import check_evaluation, load_recorded, write_beginnings
from mtcon_ray.results import TrialResult, kept_files, load_run
from mtcon_ray.resumable import check_resumable
from mtcon_ray.signals import Interrupted, on_signals
from mtcon_ray.spec import RunSpec
from mtcon_ray.status import Status
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Artifact, Ended, Reopened, Reported, Started
from mtcon_ray.tracking.mlflow_server import check_server, tracking_uri
from mtcon_ray.tracking.provenance import FINGERPRINT, check_same_data, provenance
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.trainer import Progress, Trainer
from mtcon_ray.training.checkpoint import discard_resume_state

# How long the end of a training waits for the tracking server to take what is left, and after a
# signal or a full disk, where whoever stopped it waits too.
DRAIN_SECONDS, STOPPED_DRAIN_SECONDS = 120.0, 10.0


def train_run(
    spec: RunSpec,
    *,
    root: Path,
    name: str | None = None,
    resume: bool = False,
    callbacks: Callbacks,
    environ_uri: str | None = None,
) -> TrialResult:
    """Train once, or go on with a training that was cut; its record when it has ended.

    Everything that can be wrong is found before the folder is made. Raises MtconError;
    Interrupted after SIGINT or SIGTERM, when all is checkpointed.
    """
    spec = spec.trial({})
    device = choose_device(spec)
    prepare_root(root)
    folder = _choose_folder(root, spec, name, resume)
    has_record = bool(EventLog.read(parent_log(folder)))
    if has_record and (result := load_run(folder)).status == Status.FINISHED:
        callbacks.on_note(f"{folder.name} has finished already")
        return result
    checked = check_data(spec, root)
    make_plan(spec, root, this_machine(), checked=checked)
    uri = tracking_uri(spec.tracking.uri, environ_uri, root)
    if not spec.tracking.offline:
        check_server(uri)
    fetch_weights(spec)
    store = cache_folder(root)
    dataset = open_dataset(
        spec.data,
        view_size=spec.views.size,
        store=store,
        progress=callbacks.on_decode,
        places=fetch_places(spec.data, store, callbacks.on_download, found=checked.found),
        checked=checked,
    )
    plan = make_plan(spec, root, this_machine(), decoded=dataset.table)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with driver_lock(folder):
        check_same_data(parent_log(folder), dataset.fingerprint)
        write_beginnings(folder, spec, plan)
        sender = None if spec.tracking.offline else Sender(folder, uri, spec.tracking.experiment)
        training = _Training(spec, dataset, folder, device, callbacks, sender)
        callbacks.on_start(folder.name, folder, plan)
        for warning in plan.warnings:
            callbacks.on_note(f"warning: {warning}")
        with training.tracked():
            training.run()
    return load_run(folder)


@dataclass
class _Training:
    spec: RunSpec
    dataset: Dataset
    folder: Path
    device: torch.device
    callbacks: Callbacks
    sender: Sender | None
    stopped_by: str | None = None
    may_finish_step: bool = True

    def __post_init__(self) -> None:
        self.spool = EventLog(parent_log(self.folder))
        self.name = self.folder.name

    @contextmanager
    def tracked(self) -> Iterator[None]:
        """Open the record, and close it with the status that the block ends in."""
        self._begin()
        if self.sender:
            self.sender.start()
        status, tags = Status.FAILED, {}
        try:
            with on_signals(self._stop):
                yield
            status = Status.FINISHED
        except (Interrupted, StorageError) as error:
            status, tags = Status.INTERRUPTED, {"mtcon.interrupted": "true"}
            if isinstance(error, StorageError):
                tags["mtcon.reason"] = str(error)
                self._mark_killed()  # the record below may find no room either
                raise StorageError(f"{error}; {self._way_on()}") from error
            raise
        except BaseException as error:
            tags = {"mtcon.reason": f"{type(error).__name__}: {error}"[:4000]}
            raise
        finally:
            self._end(status, tags)

    def run(self) -> None:
        """Train to the end. Raises Interrupted with the line that resumes it."""
        run = Trainer(
            self.spec,
            self.dataset,
            self.folder,
            device=self.device,
            threads=self.spec.resources.cpus,
            should_stop=lambda: self.stopped_by is not None,
        )
        self.callbacks.on_suggest(self.name, {})
        if run.damage:
            self.callbacks.on_note(run.damage)
        if run.last and run.last.epoch > self.spool.last_epoch:
            self._record(run, run.last)
        for progress in run:
            self._record(run, progress)
        if run.interrupted:
            raise self._interrupted()

    def _record(self, run: Trainer, progress: Progress) -> None:
        values = dict(progress.metrics)
        if progress.done:
            self.may_finish_step = False
            values |= run.report()
        self.spool.append(Reported(epoch=progress.epoch, metrics=values))
        self.callbacks.on_report(self.name, progress.epoch, self.spec.train.epochs, values)

    def _stop(self, signal_name: str) -> None:
        """Runs inside the signal's handler: first MLflow, then the checkpoint."""
        self.stopped_by = signal_name
        self._mark_killed()
        if not self.may_finish_step:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(
            f"stopped by {self.stopped_by}; the training is checkpointed; {self._way_on()}"
        )

    def _way_on(self) -> str:
        return f"to go on: repeat the command with --name {self.name} --resume"

    def _mark_killed(self) -> None:
        if self.sender:
            self.sender.mark_killed()

    def _begin(self) -> None:
        if self.spool.events():
            self.spool.append(Reopened())
            return
        tags = {
            **provenance(Path.cwd()),
            "mtcon.run": self.name,
            "mtcon.epochs": str(self.spec.train.epochs),
            "mtcon.seed": str(self.spec.seed),
            FINGERPRINT: self.dataset.fingerprint,
        }
        self.spool.append(Started(params={}, tags=tags))
        for file in (SPEC_FILE, PLAN_FILE):
            self.spool.append(Artifact(path=str(self.folder / file), to=""))

    def _end(self, status: Status, tags: dict[str, str]) -> None:
        try:
            if status == Status.FINISHED:
                for file in kept_files(self.folder):
                    self.spool.append(Artifact(path=str(file), to="checkpoints"))
            self.spool.append(Ended(status=status.mlflow, tags=tags))
            if status == Status.FINISHED:
                discard_resume_state(self.folder)
        except StorageError as error:
            if status == Status.FINISHED:
                raise StorageError(f"{error}; {self._way_on()}") from error
            self.callbacks.on_note(f"the end of {self.name} is not recorded: {error}")
        result = load_run(self.folder)
        self.callbacks.on_end(self.name, result.status, result.value, result.reason)
        seconds = STOPPED_DRAIN_SECONDS if status == Status.INTERRUPTED else DRAIN_SECONDS
        left = self.sender.close(seconds) if self.sender else 1
        if left:
            why = self.sender.last_error if self.sender else "tracking.offline is set"
            self.callbacks.on_note(
                f"NOT ALL IS IN MLFLOW ({why}); nothing is lost: send it with `mtcon-ray "
                f"track-sync {self.name} --root {self.folder.parent.parent}`"
            )


def _choose_folder(root: Path, spec: RunSpec, name: str | None, resume: bool) -> Path:
    """The training's folder, not made yet unless it is resumed.

    Raises SweepError for a name that is taken, missing, or whose spec differs.
    """
    runs = runs_folder(root)
    if name is None:
        name = last_name(runs, spec.name) if resume else new_name(runs, spec.name)
    folder = run_folder(root, name)
    if resume and not (folder / SPEC_FILE).exists():
        known = [entry.name for entry in list_folders(runs)]
        raise SweepError(f"no run {name!r} under {runs} to resume{nearest(name, known)}")
    if not resume and (folder / SPEC_FILE).exists():
        raise SweepError(
            f"run {name!r} exists already under {runs}; to go on with it: "
            f"repeat the command with --name {name} --resume"
        )
    if resume:
        check_evaluation(folder)
        check_resumable(load_recorded(folder / SPEC_FILE), spec)
    return folder
