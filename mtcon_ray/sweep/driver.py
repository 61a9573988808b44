"""The driver: runs a sweep from spec to report, in the process started by the user.

A killed driver is resumed from the study's journal and the event logs. Ray Tune's own state is a
pickle and is never loaded.
"""

from collections.abc import Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import (
    LAST_FILE,
    SPEC_FILE,
    attempt_folder,
    checkpoints_folder,
    journal_file,
    next_attempt,
    parent_log,
    prepare_root,
    ray_log,
    sweeps_folder,
)
from mtcon_ray.base.signals import Interrupted, on_signals
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.connection import check_shared, connected, sweep_environment, view_of
from mtcon_ray.cluster.job_package import in_job, way_on
from mtcon_ray.cluster.ray_folders import working_folder
from mtcon_ray.cluster.ray_private import end_process
from mtcon_ray.cluster.ray_watch import RayWatch
from mtcon_ray.display.build import build_report
from mtcon_ray.display.presentation import resume_line
from mtcon_ray.errors import MtconError, StorageError, storage_error
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records.folder import choose_folder, claimed
from mtcon_ray.records.recorded import load_recorded, write_beginnings
from mtcon_ray.records.results import JOB, SweepResults, load_sweep
from mtcon_ray.spec.evaluate import selected_value
from mtcon_ray.spec.run_spec import RunSpec, with_scheduler
from mtcon_ray.spec.schedulers import Halving
from mtcon_ray.sweep.audit import what_is_lost
from mtcon_ray.sweep.distributed_trial import (
    PlacementGroupCleanup,
    distributed_trial,
    driver_resources,
)
from mtcon_ray.sweep.ended import ended_results
from mtcon_ray.sweep.halving import Rung
from mtcon_ray.sweep.limits import Limits
from mtcon_ray.sweep.mirror import mirrored
from mtcon_ray.sweep.preparation import prepare
from mtcon_ray.sweep.prior import add_prior, first_configurations, prior_trials
from mtcon_ray.sweep.progress_callback import ProgressCallback
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import (
    ENDS,
    close_waiting,
    continued_trials,
    discard_leftovers,
    history,
    retry_failed,
    settle,
    tell_known,
)
from mtcon_ray.sweep.retention import Retention
from mtcon_ray.sweep.scheduler import tune_scheduler
from mtcon_ray.sweep.searcher import StudySearcher, let_trials_wait
from mtcon_ray.sweep.stop_request import Stop
from mtcon_ray.sweep.study import TRIAL, Suggester, named_trials, open_study
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.sweep.trial import common_config
from mtcon_ray.sweep.tune_private import retry_lost_processes
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.mlflow_server import tracking_uri, ui_command
from mtcon_ray.tracking.provenance import check_same_data, data_tags, provenance


def run_sweep(
    spec: RunSpec,
    *,
    root: Path,
    name: str | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    callbacks: Callbacks,
) -> SweepResults:
    """Runs or resumes a sweep to its end, builds its report and returns its results.

    With `retry_failed` a resumed sweep also trains its failed trials again, from their start. The
    spec, the data, the cluster and the tracking server are checked before anything of the sweep is
    written. Raises MtconError, or Interrupted after a signal.
    """
    prepare_root(root, callbacks.on_note)
    folder = choose_folder(sweeps_folder(root), spec, name, resume, way_on=way_on)
    spec = with_scheduler(spec, load_recorded(folder / SPEC_FILE) if resume else None)
    with ExitStack() as stack:
        stack.enter_context(claimed(folder))
        uri = tracking_uri(spec.tracking.uri, root)
        if resume and (ended := ended_results(folder, spec, uri, callbacks, again=retry_failed)):
            return ended
        view = view_of(None, callbacks.on_phase)
        prior = prior_trials(spec, root, folder)
        first = first_configurations(spec, prior)
        plan, dataset = prepare(spec, root, view, uri, callbacks, first)
        check_same_data(parent_log(folder), dataset.fingerprint)
        job = {JOB: "true"} if in_job() else {}
        tags = {**provenance(working_folder()), **data_tags(dataset), **job}
        stack.enter_context(mirrored(folder, spec.storage.mirror, callbacks, resume=resume))
        callbacks.on_phase("connecting to Ray")
        stack.enter_context(connected(ray_log(folder), sweep_environment(spec.resources.cpus)))
        check_shared(root)
        write_beginnings(folder, spec, plan)
        sweep = _Sweep(spec, root, folder, plan, uri, callbacks, dataset.places, prior)
        with on_signals(sweep.halt):
            return sweep.run(tags, again=retry_failed)


@dataclass
class _Sweep:
    """A driver's work on a sweep. Its methods up to `value` are the searcher's `Driver`."""

    spec: RunSpec
    root: Path
    folder: Path
    plan: Plan
    uri: str
    callbacks: Callbacks
    places: Mapping[str, str]
    prior: list[FrozenTrial]

    def __post_init__(self) -> None:
        self.lifecycle = Lifecycle(self.folder, self.spec.tracking, self.uri, self.callbacks)
        self.study = open_study(journal_file(self.folder), self.folder.name)
        add_prior(self.study, self.prior)
        self.record = SweepRecord(self.folder, self.spec)
        self.retention: Retention | None = None
        self.stop = Stop(self.folder)
        self.progress = ProgressCallback(self.callbacks)
        self.groups = PlacementGroupCleanup()
        spent = sum(trial.seconds for trial in load_sweep(self.folder).trials)
        waits = self.groups.waits if self._is_distributed else lambda _: False
        self.limits = Limits(self.folder, self.spec, self.callbacks, self.stop, spent, waits)

    @property
    def stopping(self) -> bool:
        """True if the sweep must end."""
        return self.stop.asked

    @property
    def exhausted(self) -> bool:
        """True if the sweep has used up its time."""
        return self.limits.exceeded is not None

    def halt(self, reason: str) -> None:
        """Asks all trials to checkpoint and end."""
        if not self.stop.asked:
            self.lifecycle.stop()
        self.stop.ask(reason)

    def _give_up(self) -> None:
        """Ends the process while it hangs in a call of Ray."""
        self.callbacks.on_abort(str(self._stopped(str(self.stop.reason))))
        end_process()

    def started(self, trial: FrozenTrial) -> None:
        """Records the start or the continuation of a trial."""
        self.record.trial_started(trial)
        self.limits.started(trial.user_attrs[TRIAL])
        self.callbacks.on_suggest(trial.user_attrs[TRIAL], trial.params)

    def ended(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        """Records the end of a trial, unless it waits at a rung."""
        if outcome is not Status.WAITING:
            self.record.trial_ended(trial, outcome, reason)
        name, value = trial.user_attrs[TRIAL], self.value(trial)
        if self.retention and outcome.is_final:
            self.retention.ended(name)
        self.limits.ended(name)
        self.callbacks.on_end(name, outcome.name, value, reason)

    def explain(self, trial: FrozenTrial) -> str:
        """Returns the reason for a trial's failure as a single line."""
        name = trial.user_attrs[TRIAL]
        reason = (
            self.limits.reason_of(name) or self.progress.error_of(name) or "its process was lost"
        )
        return f"{reason} (log: {ray_log(self.folder)})"

    def recorded(self, trial: FrozenTrial) -> dict[int, float]:
        """Returns the values in a trial's event log, by epoch."""
        return self.record.values(trial)

    def value(self, trial: FrozenTrial) -> float | None:
        """Returns the objective of the trial's selected epoch."""
        return selected_value(trial.intermediate_values, self.spec.evaluate.select)

    def run(self, tags: dict[str, str], *, again: bool) -> SweepResults:
        """Trains the remaining trials, with `again` also failed trials, and returns the results."""
        notes = what_is_lost(self.folder)
        settle(self.study, self.record)
        if again and (opened := retry_failed(self.study, self.record)):
            notes.append(f"trained again: {', '.join(opened)}")
        if (keep := self.spec.storage.keep) is not None:
            self.retention = Retention(self.folder, keep)
        self.lifecycle.begin(self.plan, lambda: self.record.start(tags))
        try:
            results = self._results(notes)
        except BaseException as error:  # also a second signal
            self.halt(repr(error))
            self.lifecycle.close(stopped=True)
            raise
        self.lifecycle.close(stopped=self.stop.asked)
        if results is None:
            raise self._stopped(str(self.stop.reason))
        if self.stop.asked:
            raise Interrupted(f"stopped by {self.stop.reason}; {self.folder.name} has ended")
        return results

    def _results(self, notes: list[str]) -> SweepResults | None:
        """Trains to the end of the sweep. If it is stopped, records the stop and returns None."""
        for note in notes:
            self.callbacks.on_note(note)
        try:
            with RayWatch(self.halt, self._give_up), nullcontext():
                self._tune()
            if not self.stop.asked:
                return self._finish()
        except Exception as error:
            if (disk := storage_error(error)) is None:
                raise
            self.halt(str(disk))
            # Ends the trials, because they would write into event logs that are closed below.
            ray.shutdown()
        self._close_unfinished()
        return None

    def _finish(self) -> SweepResults:
        discard_leftovers(self.study, self.record)
        if self.retention:
            self.retention.finish()
        self.record.send_kept(named_trials(self.study))  # also after a kill at a trial's end
        tags = {}
        ended = sum(trial.state in ENDS for trial in named_trials(self.study))
        if ended < (planned := self.plan.num_trials) and (limit := self.limits.exceeded):
            line = resume_line(self.folder.name, submitted=in_job())
            reason = f"{limit}: {ended} of {planned} trials have ended; to continue: {line}"
            close_waiting(self.study, self.record)
            self.callbacks.on_note(reason)
            tags["mtcon.reason"] = reason
        results = load_sweep(self.folder)
        report = build_report(results, ui_command=ui_command(self.uri))
        self.record.end("FINISHED" if results.winner else "FAILED", report, **tags)
        return results

    def _close_unfinished(self) -> None:
        """Records the interrupted trials. On a full disk the resume does it instead."""
        try:
            close_waiting(self.study, self.record)
            self.record.end("KILLED", None, **{"mtcon.interrupted": "true"})
        except StorageError as error:
            self.callbacks.on_note(f"the end is not recorded, --resume puts it right: {error}")

    def _tune(self) -> None:
        suggester = Suggester(self.study, self.spec.search, self.spec.seed)
        continued = continued_trials(self.study)
        rung = self._rung(suggester.num_trials)
        for trial in named_trials(self.study):
            waits = rung is not None and rung.waits(trial)
            tell_known(trial, self.record, self.callbacks, self.value(trial), waits=waits)
        is_over = self.exhausted or self.stopping
        if is_over or not (continued or suggester.num_given < suggester.num_trials):
            return
        ended = [t for t in named_trials(self.study) if t.state is not TrialState.RUNNING]
        searcher = StudySearcher(
            suggester,
            [t for t in continued if not (rung and rung.waits(t))],
            self,
            max_concurrent=self.plan.concurrency or 1000,
            rung=rung,
        )
        scheduler = tune_scheduler(
            self.spec.scheduler,
            [history(t, self.record.epochs(t)) for t in ended],
            {t.user_attrs[TRIAL]: history(t, self.record.epochs(t)) for t in continued},
        )
        folder = attempt_folder(self.folder, number := next_attempt(self.folder))
        common = common_config(self.spec, self.folder, self.root, self.places, number)
        retry_lost_processes()
        let_trials_wait(self.spec.resources, self.plan.concurrency)
        tune.Tuner(
            self._trainable(),
            param_space={"common": common},
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=scheduler,
                num_samples=-1,
                reuse_actors=not self._is_distributed,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                callbacks=[self.progress, self.limits, self.groups],
                failure_config=tune.FailureConfig(max_failures=self.spec.search.max_failures),
                stop=self.stop,
                verbose=0,
            ),
        ).fit()

    def _rung(self, num_trials: int) -> Rung | None:
        """Returns the rung at which trials wait for each other, or None if no trial waits."""
        if not isinstance(scheduler := self.spec.scheduler, Halving.Spec):
            return None
        return Rung(scheduler, num_trials, self.record.epochs, self.spec.evaluate.every)

    def _trainable(self) -> Any:
        resources = self.spec.resources
        if self._is_distributed:
            return tune.with_resources(distributed_trial, driver_resources())
        return tune.with_resources(ReusedTrainable, {"cpu": resources.cpus, "gpu": resources.gpus})

    @property
    def _is_distributed(self) -> bool:
        return self.spec.resources.worker_range[1] > 1

    def _stopped(self, reason: str) -> MtconError:
        saved = any(checkpoints_folder(self.folder).rglob(LAST_FILE))
        state = "checkpoints are kept" if saved else "no trial has a checkpoint yet"
        line = resume_line(self.folder.name, submitted=in_job())
        text = f"{reason}; {state}; to continue: {line}"
        return Interrupted(f"stopped by {text}") if reason.startswith("SIG") else MtconError(text)


def _name(trial: Any) -> str:
    return str(trial.config["trial"])
