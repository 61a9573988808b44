"""A tracked training without Ray.

<root>/runs/<name>/ holds spec.yaml, plan.json, model.pt and predictions.npz. Until the training is
done, it also holds last.pt and last.previous.pt. The event log spool/parent.jsonl is the run's
record and is sent to MLflow.
"""

from dataclasses import dataclass
from pathlib import Path

import torch

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import cache_folder, parent_log, prepare_root, runs_folder
from mtcon_ray.base.signals import Interrupted, on_signals
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.environment import working_directory
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.display.presentation import resume_line
from mtcon_ray.errors import StorageError
from mtcon_ray.plan.local import choose_device, this_machine
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Reported, Started
from mtcon_ray.records.folder import choose_folder, claimed
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import TrialResult, kept_files, load_run, load_single
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.preparation import prepare
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.mlflow_server import tracking_uri
from mtcon_ray.tracking.provenance import (
    check_same_data,
    data_tags,
    fixed_settings,
    place_tags,
    provenance,
)
from mtcon_ray.tracking.system_metrics import SystemMetrics
from mtcon_ray.training.checkpoint import discard_resume_state
from mtcon_ray.training.trainer import Progress, Trainer


def train_run(
    spec: RunSpec,
    *,
    root: Path,
    name: str | None = None,
    resume: bool = False,
    callbacks: Callbacks,
) -> TrialResult:
    """Trains once, or resumes an interrupted training, and returns its record.

    All input is checked before the training's folder is kept. Raises MtconError, or Interrupted
    after a signal when the training is checkpointed.
    """
    spec = spec.trial({})
    device = choose_device(spec)
    prepare_root(root, callbacks.on_note)
    if spec.storage.mirror is not None:
        callbacks.on_note("warning: storage.mirror copies sweeps only, not a single training")
    folder = choose_folder(runs_folder(root), spec, name, resume, way_on=resume_line)
    uri = tracking_uri(spec.tracking.uri, root)
    if EventLog.read(parent_log(folder)):
        known = load_single(folder)
        for text in known.lost:
            callbacks.on_note(text)
        if known.trials[0].status == Status.FINISHED:
            callbacks.on_note(f"{folder.name} has finished already")
            with claimed(folder):  # a kill after the last event leaves a resume state
                discard_resume_state(folder)
                Lifecycle(folder, spec.tracking, uri, callbacks).send_rest()
            return known.trials[0]
    with claimed(folder):
        plan, dataset = prepare(spec, root, this_machine(), uri, callbacks)
        check_same_data(parent_log(folder), dataset.fingerprint)
        write_beginnings(folder, spec, plan)
        lifecycle = Lifecycle(folder, spec.tracking, uri, callbacks)
        store = cache_folder(root)
        _Training(spec, dataset, folder, device, callbacks, lifecycle, store).run(plan)
    return load_run(folder)


@dataclass
class _Training:
    spec: RunSpec
    dataset: Dataset
    folder: Path
    device: torch.device
    callbacks: Callbacks
    lifecycle: Lifecycle
    store: Path
    stopped_by: str | None = None
    may_finish_step: bool = True
    place: dict[str, str] | None = None
    system: SystemMetrics | None = None

    def __post_init__(self) -> None:
        self.log = self.lifecycle.log
        self.name = self.folder.name
        self.to_continue = f"to continue: {resume_line(self.name)}"

    def run(self, plan: Plan) -> None:
        """Opens the record, trains to the end, and records the end.

        Signals are handled until MLflow has all events. Raises Interrupted after a signal, with the
        line to resume the training unless it has finished.
        """
        with on_signals(self._stop):
            self._run(plan)
        if self.stopped_by:
            raise Interrupted(f"stopped by {self.stopped_by}; {self.name} has finished")

    def _run(self, plan: Plan) -> None:
        self.lifecycle.begin(plan, self._start)
        status, tags = Status.FAILED, {}
        try:
            self._train()
            status = Status.FINISHED
        except (Interrupted, StorageError) as error:
            status, tags = Status.INTERRUPTED, {"mtcon.interrupted": "true"}
            if isinstance(error, StorageError):
                tags["mtcon.reason"] = str(error)
                raise StorageError(f"{error}; {self.to_continue}") from error
            raise
        except KeyboardInterrupt:  # a second signal
            status, tags = Status.INTERRUPTED, {"mtcon.interrupted": "true"}
            raise
        except BaseException as error:
            tags = {"mtcon.reason": f"{type(error).__name__}: {error}"[:4000]}
            raise
        finally:
            self._end(status, tags)

    def _train(self) -> None:
        run = Trainer(
            self.spec,
            self.dataset,
            self.folder,
            device=self.device,
            should_stop=lambda: self.stopped_by is not None,
            store=self.store,
        )
        damage = run.resume()
        self.place = place_tags(run.place)
        # After the network is on its device, because CUDA has no statistics to reset before.
        self.system = SystemMetrics(self.device) if self.spec.tracking.system_metrics else None
        self.callbacks.on_suggest(self.name, {})
        if damage:
            self.callbacks.on_note(damage)
        if run.last and run.last.epoch > self.log.last_epoch:
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
            self.may_finish_step = True
        if self.system:
            values |= self.system.sample()
        report = Reported(epoch=progress.epoch, metrics=values, tags=self.place)
        if self.log.append(report):
            self.place = None
        self.callbacks.on_report(self.name, progress.epoch, self.spec.train.epochs, values)

    def _stop(self, signal_name: str) -> None:
        """Runs inside the signal's handler."""
        self.stopped_by = signal_name
        self.lifecycle.stop()
        if not self.may_finish_step:
            raise self._interrupted()

    def _interrupted(self) -> Interrupted:
        return Interrupted(
            f"stopped by {self.stopped_by}; the training is checkpointed; {self.to_continue}"
        )

    def _start(self) -> Started:
        tags = {
            **provenance(working_directory()),
            "mtcon.run": self.name,
            "mtcon.epochs": str(self.spec.train.epochs),
            "mtcon.seed": str(self.spec.seed),
            **data_tags(self.dataset),
        }
        return Started(params={}, tags=tags, settings=fixed_settings(self.spec))

    def _end(self, status: Status, tags: dict[str, str]) -> None:
        is_cut = status == Status.INTERRUPTED
        try:
            self._record_end(status, tags)
            result = load_run(self.folder)
            self.callbacks.on_end(self.name, result.status, result.value, result.reason)
        except BaseException:
            is_cut = True
            raise
        finally:
            self.lifecycle.close(stopped=is_cut or self.stopped_by is not None)

    def _record_end(self, status: Status, tags: dict[str, str]) -> None:
        try:
            self.log.append(Ended(status=status.mlflow, tags=tags))
            if status == Status.FINISHED:
                discard_resume_state(self.folder)
            if self.spec.tracking.sends_files_of(status):
                for file in kept_files(self.folder):
                    self.log.append(Artifact(path=str(file), to="checkpoints"))
        except StorageError as error:
            if status == Status.FINISHED:
                raise StorageError(f"{error}; {self.to_continue}") from error
            self.callbacks.on_note(f"the end of {self.name} is not recorded: {error}")
