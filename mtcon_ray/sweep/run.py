"""A sweep from spec to report, in the process started by the user.

A killed sweep is resumed from its event log and the checkpoints of its trials. Ray Tune's own state
is a pickle and is never loaded.
"""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mtcon_ray.base import paths, plugins
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.lock import is_driven
from mtcon_ray.base.root_files import make_folder, remove_folder
from mtcon_ray.base.signals import Interrupted, on_signals
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.environment import working_folder
from mtcon_ray.cluster.jobs import in_job, way_on
from mtcon_ray.data import prepared
from mtcon_ray.data.image_cache import lent_nothing
from mtcon_ray.data.objects import patiently
from mtcon_ray.errors import MtconError, StorageError, storage_error
from mtcon_ray.plan.local import choose_device, this_machine
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records import stored
from mtcon_ray.records.folder import check_folder, claimed
from mtcon_ray.records.recorded import load_recorded, write_beginnings
from mtcon_ray.records.results import EXECUTOR, HERE, JOB, SweepResults, load_sweep
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_scheduler
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import run_here
from mtcon_ray.sweep.preparation import prepare
from mtcon_ray.sweep.prior import earlier_trials, first_configurations
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.mlflow_server import own_database, tracking_uri, ui_command
from mtcon_ray.tracking.provenance import CACHE, FINGERPRINT, changed_since_start, provenance


def run_sweep(
    spec: RunSpec,
    *,
    root: Path,
    name: str | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    here: bool = False,
    take_over: bool = False,
    callbacks: Callbacks,
) -> SweepResults:
    """Runs or resumes a sweep to its end, builds its report and returns its results.

    With `retry_failed` a resumed sweep also trains its failed trials again, from their start. With
    `here` all trials are trained in this process, one after another, without Ray. With `take_over`
    a sweep in an object store is taken from a driver that seems to run. The spec, the
    data, the cluster and the tracking server are checked before anything of the sweep is written.
    Raises MtconError, or Interrupted after a signal.
    """
    device = choose_device(spec) if here else None
    paths.prepare_root(root)
    if url := paths.stored_url(root):
        callbacks.on_phase(f"looking at {url}")
        stored.refresh_names(root)
    name = name or (paths.last_name if resume else paths.new_name)(root, spec.name)
    folder = paths.sweep_folder(root, name)
    if not stored.fetch_sweep(folder) and not (resume or is_driven(folder)):
        remove_folder(folder, ignore_errors=True)  # a copy of a sweep that is not there any more
    check_folder(folder, spec, resume=resume, hint=way_on)
    spec = with_scheduler(spec, load_recorded(folder / paths.SPEC_FILE) if resume else None)
    with ExitStack() as stack:
        stack.enter_context(claimed(folder))
        store = stack.enter_context(stored.driven(folder, callbacks.on_note, take_over=take_over))
        uri = tracking_uri(spec.tracking.uri, root)
        lifecycle = Lifecycle(folder, spec.tracking, uri, callbacks)
        if resume and _has_ended(folder, spec, again=retry_failed):
            callbacks.on_note(f"{folder.name} has ended already, with all its trials")
            lifecycle.send_rest()
            return _reported(folder, uri)[0]
        lent = lent_nothing
        if not here:
            from mtcon_ray.cluster import connection, nodes  # import Ray

            lent = partial(nodes.lent_decoders, callbacks.on_phase)
        view = this_machine() if here else connection.view_of(None, callbacks.on_phase)
        earlier = earlier_trials(spec, root, folder)
        first = first_configurations(spec, earlier)
        plan, dataset, sets = prepare(spec, folder, view, uri, callbacks, first, lent)
        if here:
            plan = plan.model_copy(update={"concurrency": 1})
        tags = {FINGERPRINT: dataset.fingerprint, CACHE: dataset.cache}
        tags |= {EXECUTOR: HERE if here else "ray"} | ({JOB: "true"} if in_job() else {})
        tags |= {prepared.SETS_TAG: json.dumps(sets, sort_keys=True)} | provenance(working_folder())
        notes = [f"warning: {text}" for text in changed_since_start(folder, tags, sets)]
        if not here:
            callbacks.on_phase("connecting to Ray")
            environment = connection.sweep_environment(spec.resources.cpus)
            stack.enter_context(connection.connected(folder / paths.RAY_LOG, environment))
            notes += [f"warning: {text}" for text in nodes.check_nodes(folder)]
        write_beginnings(folder, spec, plan)
        notes += [_where(folder, uri, spec)] if store else []
        for text in (*notes, *load_sweep(folder).lost):
            callbacks.on_note(text)
        record = SweepRecord(folder, spec, store.open_log() if store else None)
        record.begin(tags, [folder / paths.SPEC_FILE, folder / paths.PLAN_FILE], earlier)
        driver = Driver(record, callbacks, max_concurrent=plan.concurrency or 1000)
        sweep = _Sweep(folder, driver, plan, lifecycle, sets, store, device)
        if store:
            lifecycle.sender.limit = store.done
            store.on_lost = sweep.halt
        with on_signals(sweep.halt):
            return sweep.run(again=retry_failed)


def train_once(spec: RunSpec, *, callbacks: Callbacks, **options: Any) -> SweepResults:
    """Trains once, as a sweep of one trial without the spec's search. Returns its results.

    A training with one worker needs no Ray. Takes the options of `run_sweep`, and raises as it
    does.
    """
    alone = spec.trial({})
    here = alone.resources.worker_range[1] == 1
    if not here:
        callbacks.on_note("the training has several workers, which Ray starts")
    return run_sweep(alone, here=here, callbacks=callbacks, **options)


def _where(folder: Path, uri: str, spec: RunSpec) -> str:
    """Returns a line that names the places of a sweep in an object store, and of its runs."""
    text = f"results: {paths.stored_url(folder)}"
    if uri == own_database(folder.parents[1]) and not spec.tracking.offline:
        text += f"; without tracking.uri its runs in MLflow are on this machine alone, in {uri}. "
        text += "After a loss of this machine a resume sends them again"
    return text


def _reported(folder: Path, uri: str) -> tuple[SweepResults, Path]:
    """Returns the results of a sweep, and the page of its report, which is built."""
    from mtcon_ray.display.build import build_report  # imports matplotlib

    results = load_sweep(folder)
    return results, build_report(results, ui_command=ui_command(uri))


def _has_ended(folder: Path, spec: RunSpec, *, again: bool) -> bool:
    """Returns True if a sweep of this spec has ended with all its trials."""
    recorded, results = load_recorded(folder / paths.SPEC_FILE), load_sweep(folder)
    failed = [trial for trial in results.trials if trial.status is Status.FAILED]
    is_same = dump_spec(with_scheduler(recorded)) == dump_spec(spec)
    has_ended = results.is_complete and results.status[0] in (Status.FINISHED, Status.FAILED)
    return is_same and has_ended and not results.lost and not (again and failed)


@dataclass
class _Sweep:
    """A sweep in training. `store` is None for a root on a path.

    `device` is the device of trials in this process, None if Ray Tune trains them.
    """

    folder: Path
    driver: Driver
    plan: Plan
    lifecycle: Lifecycle
    sets: prepared.Sets
    store: stored.StoredSweep | None
    device: torch.device | None

    def halt(self, reason: str) -> None:
        """Asks all trials to checkpoint and end. Runs inside the handler of a signal."""
        self.lifecycle.sender.hurry()
        if self.store:
            self.store.patience = stored.END_SECONDS
        self.driver.halt(reason)

    def run(self, *, again: bool) -> SweepResults:
        """Trains the remaining trials, with `again` also failed trials, and returns the results."""
        self.lifecycle.begin(self.plan)
        results = None
        try:
            self.driver.begin(retry_failed=again)
            self._train()
            if self.driver.stopping:
                self._close_unfinished()
            else:
                results = self._finish()
        except BaseException as error:  # also a second signal
            disk = isinstance(error, Exception) and storage_error(error)
            self.halt(str(disk or repr(error)))
            if disk or self.device is not None:  # else processes of Ray may still train
                self._close_unfinished()
            if not disk:
                raise
        finally:
            self.lifecycle.close(stopped=self.driver.stopping)
        reason = str(self.driver.stop_reason)
        if results is None:
            raise self._stopped(reason)
        if self.driver.stopping:
            raise Interrupted(f"stopped by {reason}; {self.folder.name} has ended")
        return results

    def _train(self) -> None:
        if self.driver.is_over:
            return
        if self.device is None:
            from mtcon_ray.sweep.on_ray import train_on_ray  # imports ray.tune, which takes seconds

            return train_on_ray(self.driver, self._common, self.plan.concurrency, self._tell_end)
        run_here(self.driver, self._common(""), self.device)

    def _common(self, register: str) -> dict[str, Any]:
        """Returns the configuration of all trials of a new attempt, see `Assignment.read`."""
        attempt = paths.next_attempt(self.folder)
        make_folder(paths.attempt_folder(self.folder, attempt))
        return {
            # As text: Tune copies the configuration for every trial, and copies share a string.
            "spec": json.dumps(dump_spec(self.driver.spec)),
            "sweep": self.folder.name,
            "root": paths.shown(self.folder.parents[1]),
            "sets": self.sets,
            "weights": (self.folder / prepared.WEIGHTS).exists(),
            "plugins": plugins.allowed_folders(),
            "attempt": attempt,
            "driver": self.store.claim.number if self.store else 0,
            "register": register,
        }

    def _finish(self) -> SweepResults:
        tags = {}
        if reason := self.driver.finish():
            reason = f"{reason}; to continue: {way_on(self.folder)}"
            self.driver.callbacks.on_note(reason)
            tags["mtcon.reason"] = reason
        patiently(lambda: stored.fetch_trials(self.folder, [paths.PREDICTIONS_FILE]))
        results, report = _reported(self.folder, self.lifecycle.sender.uri)
        self.driver.record.end("FINISHED" if results.winner else "FAILED", report, **tags)
        return results

    def _close_unfinished(self) -> None:
        """Records the interrupted trials. On a full disk the resume does it instead."""
        try:
            self.driver.close_open()
            self.driver.record.end("KILLED", None, **{"mtcon.interrupted": "true"})
        except StorageError as error:
            text = f"the end is not recorded, --resume puts it right: {error}"
            self.driver.callbacks.on_note(text)

    def _tell_end(self, reason: str) -> None:
        """Tells the user why this process ends now, from another thread."""
        self.driver.callbacks.on_abort(str(self._stopped(reason)))

    def _stopped(self, reason: str) -> MtconError:
        text = f"{reason}; checkpoints are kept; to continue: {way_on(self.folder)}"
        return Interrupted(f"stopped by {text}") if reason.startswith("SIG") else MtconError(text)
