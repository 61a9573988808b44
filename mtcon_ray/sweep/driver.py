"""A sweep from spec to report, in the process that the user started.

The study's journal and the spool files are what lasts; Ray Tune's own state is never read back,
so a killed driver is resumed from them alone, and no pickle is ever loaded.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack, chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray import tune

from mtcon_ray.data.dataset import fetch_places, open_dataset
from mtcon_ray.errors import MtconError
from mtcon_ray.observer import Observer
from mtcon_ray.places import SPEC_FILE, log_folder, store_folder
from mtcon_ray.plan import Plan, check_cluster, make_plan, prepare_root, write_beginnings
from mtcon_ray.report.build import build_report
from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.search.schedulers import Halving
from mtcon_ray.signals import Interrupted, on_signals
from mtcon_ray.spec import RunSpec, dump_spec, load_spec, with_scheduler, with_values
from mtcon_ray.sweep.cluster import check_shared, connected, sweep_environment, view_of
from mtcon_ray.sweep.folder import choose_folder, claimed
from mtcon_ray.sweep.forget import Forget
from mtcon_ray.sweep.gang import Reaper, driver_resources, gang_trial
from mtcon_ray.sweep.halving import Rungs
from mtcon_ray.sweep.past import ENDS, close_waiting, continued_trials, history, settle
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.scheduler import make_scheduler
from mtcon_ray.sweep.searcher import StudySearcher
from mtcon_ray.sweep.share import FairShare
from mtcon_ray.sweep.stopping import Stop
from mtcon_ray.sweep.study import (
    REASON,
    TRIAL,
    Suggester,
    importances,
    named_trials,
    open_study,
    preview,
)
from mtcon_ray.sweep.trial import Outcome
from mtcon_ray.sweep.warm import WarmTrial
from mtcon_ray.sweep.watch import Watch
from mtcon_ray.tracking.provenance import FINGERPRINT, check_same_data, provenance
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.tracking.server import check_server, tracking_uri, ui_command

NUM_PREVIEWED = 5
# How long the end of a sweep waits for the tracking server to take what is left.
DRAIN_SECONDS = 120.0
# Tries of Ray Train to place a trial's workers, a minute each: a node may have to boot.
CONTROLLER_FAILURES = 30
STATUS = {
    Outcome.FINISHED: "FINISHED",
    Outcome.PRUNED: "PRUNED",
    Outcome.FAILED: "FAILED",
    Outcome.INTERRUPTED: "INTERRUPTED",
    Outcome.WAITING: "WAITING",
}


def run_sweep(
    spec: RunSpec,
    *,
    root: Path,
    name: str | None = None,
    resume: bool = False,
    observer: Observer,
    environ_uri: str | None = None,
) -> SweepResults:
    """Run or resume a sweep to its end and build its report.

    Everything that can be wrong is found before the sweep's folder is made. Raises MtconError;
    Interrupted after SIGINT or SIGTERM, when all is checkpointed.
    """
    prepare_root(root)
    folder = choose_folder(root, spec, name, resume)
    spec = with_scheduler(spec, load_spec(folder / SPEC_FILE) if resume else None)
    uri = tracking_uri(spec.tracking.uri, environ_uri, root)
    with ExitStack() as stack:
        if resume:
            stack.enter_context(claimed(folder))
        first = tuple(preview(spec.search, spec.seed, NUM_PREVIEWED))
        plan = make_plan(spec, root, view_of(None), first_configurations=first)
        asked = _Question(partial(check_server, uri)) if not spec.tracking.offline else None
        store = store_folder(root)
        places = fetch_places(spec.data, store, observer.on_download)
        spec.model.encoder.fetch_weights()
        dataset = open_dataset(
            spec.data,
            seed=spec.data.seed,
            view_size=spec.views.size,
            store=store,
            progress=observer.on_store,
            places=places,
        )
        if asked:
            asked.answer()
        if not resume:
            stack.enter_context(claimed(folder))
        check_same_data(SweepRecord(folder, spec).parent.path, dataset.fingerprint)
        write_beginnings(folder, spec, plan)
        tags = {**provenance(Path.cwd()), FINGERPRINT: dataset.fingerprint}
        # A job's working directory is Ray's, which may replace it under a running driver.
        stack.enter_context(chdir(folder))
        environment = sweep_environment(spec.resources.cpus)
        stack.enter_context(connected(log_folder(folder) / "ray.log", environment))
        check_shared(root)
        return _Sweep(spec, root, folder, plan, uri, observer, places).run(tags)


class _Question:
    """A call that runs beside the preparations; `answer` waits and raises what it raised."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._error: MtconError | None = None
        self._thread = Thread(target=self._run, args=(ask,), daemon=True)
        self._thread.start()

    def _run(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except MtconError as error:
            self._error = error

    def answer(self) -> None:
        self._thread.join()
        if self._error:
            raise self._error


@dataclass
class _Sweep:
    spec: RunSpec
    root: Path
    folder: Path
    plan: Plan
    uri: str
    observer: Observer
    places: dict[str, str]

    def run(self, tags: dict[str, str]) -> SweepResults:
        """Train what is left to train, then report."""
        study = open_study(self.folder / "study.journal", self.folder.name)
        record = SweepRecord(self.folder, self.spec)
        settle(study, record)
        record.begin(tags)
        sender = Sender(self.folder, self.uri, self.spec.tracking.experiment)
        if not self.spec.tracking.offline:
            sender.start()
        stop = Stop(self.folder)

        def interrupt(signal_name: str) -> None:
            if not self.spec.tracking.offline:
                sender.mark_killed()
            stop.ask(signal_name)

        self.observer.on_start(self.folder.name, self.folder, self.plan)
        with on_signals(interrupt):
            self._tune(study, record, stop)
        if stop.reason:
            close_waiting(study, record)
            record.end("KILLED", None, **{"mtcon.interrupted": "true"})
            self._send_rest(sender)
            raise self._stopped(stop.reason)
        results = load_sweep(self.folder)
        report = build_report(results, importances(study), ui_command=ui_command(self.uri))
        record.end("FINISHED" if results.winner else "FAILED", report, **_winner_tags(results))
        self._send_rest(sender)
        return results

    def _tune(self, study: optuna.Study, record: SweepRecord, stop: Stop) -> None:
        suggester = Suggester(study, self.spec.search, self.spec.seed)
        continued = continued_trials(study)
        if not continued and suggester.num_given >= suggester.num_trials:
            return
        ended = [t for t in named_trials(study) if t.state is not TrialState.RUNNING]
        for trial in ended:
            self._tell_end(trial, ENDS[trial.state], trial.user_attrs.get(REASON))
        rungs = self._rungs(suggester, record)
        searcher = StudySearcher(
            suggester,
            [t for t in continued if not (rungs and rungs.waits(t))],
            max_concurrent=self._share(),
            stopping=lambda: stop.asked,
            on_start=partial(self._started, record),
            on_end=partial(self._ended, record),
            explain=self._explain,
            rungs=rungs,
        )
        resources = self.spec.resources
        scheduler = make_scheduler(
            self.spec.scheduler,
            [history(t, record.epochs(t)) for t in ended],
            {t.user_attrs[TRIAL]: history(t, record.epochs(t)) for t in continued},
        )
        request = f"{resources.cpus} CPUs and {resources.gpus:g} GPUs per worker"
        tune.Tuner(
            self._trainable(),
            param_space={"common": self._common()},
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                scheduler=scheduler,
                num_samples=-1,
                reuse_actors=not self._is_gang,
                trial_name_creator=_name,
                trial_dirname_creator=_name,
            ),
            run_config=tune.RunConfig(
                name=self._attempt().name,
                storage_path=str(self.folder / "tune"),
                callbacks=[Watch(self.observer, stop, request), Reaper(), Forget()],
                failure_config=tune.FailureConfig(max_failures=self.spec.search.max_failures),
                stop=stop,
                verbose=0,
            ),
        ).fit()

    def _rungs(self, suggester: Suggester, record: SweepRecord) -> Rungs | None:
        scheduler, every = self.spec.scheduler, self.spec.evaluate.every
        if not isinstance(scheduler, Halving.Spec):
            return None
        return Rungs(scheduler, suggester.num_trials, record.epochs, every)

    def _share(self) -> FairShare:
        freely = with_values(self.spec, {"search.max_concurrent": None})
        return FairShare(check_cluster(freely, view_of(None)), self.plan.concurrency or 1000)

    def _trainable(self) -> Any:
        resources = self.spec.resources
        if self._is_gang:
            return tune.with_resources(gang_trial, driver_resources())
        return tune.with_resources(WarmTrial, {"cpu": resources.cpus, "gpu": resources.gpus})

    @property
    def _is_gang(self) -> bool:
        return self.spec.resources.worker_range[1] > 1

    def _common(self) -> dict[str, Any]:
        return {
            # As text, which Tune's copies for every trial share.
            "spec": json.dumps(dump_spec(self.spec)),
            "sweep": str(self.folder),
            "root": str(self.root),
            "places": self.places,
            "max_failures": self.spec.search.max_failures,
            "controller_failures": CONTROLLER_FAILURES,
        }

    def _attempt(self) -> Path:
        """Tune's folder of this driver; each driver has its own."""
        if not hasattr(self, "_attempt_folder"):
            number = len(list((self.folder / "tune").glob("attempt-*")))
            self._attempt_folder = self.folder / "tune" / f"attempt-{number}"
        return self._attempt_folder

    def _explain(self, trial: str) -> str:
        """Why a trial's process was lost, as far as Tune knows."""
        # A trial that was given out again has a folder of Tune's with something behind its name.
        files = self._attempt().glob(f"{trial}*/error.txt")
        file = max(files, key=lambda f: f.stat().st_mtime, default=None)
        lines = file.read_text(encoding="utf-8").strip().splitlines() if file else []
        why = lines[-1] if lines else "its process was lost"
        return f"{why} (log: {file or self._attempt() / trial})"

    def _started(self, record: SweepRecord, trial: FrozenTrial, again: bool) -> None:
        record.trial_started(trial)
        self.observer.on_suggest(trial.user_attrs[TRIAL], trial.params)

    def _ended(
        self, record: SweepRecord, trial: FrozenTrial, outcome: Outcome, reason: str | None
    ) -> None:
        if outcome is not Outcome.WAITING:
            record.trial_ended(trial, outcome, reason)
        self._tell_end(trial, outcome, reason)

    def _tell_end(self, trial: FrozenTrial, outcome: Outcome, reason: str | None) -> None:
        values = trial.intermediate_values
        value = values[max(values)] if values else None
        self.observer.on_end(trial.user_attrs[TRIAL], STATUS[outcome], value, reason)

    def _send_rest(self, sender: Sender) -> None:
        left = sender.close(DRAIN_SECONDS) if not self.spec.tracking.offline else 1
        if sender.refused:
            self.observer.on_note(
                f"MLFLOW REFUSED {len(sender.refused)} records ({sender.refused[0]}); "
                f"they stay in {self.folder / 'spool'}"
            )
        if left:
            why = "tracking.offline is set" if self.spec.tracking.offline else sender.last_error
            self.observer.on_note(
                f"NOT ALL IS IN MLFLOW ({why}); nothing is lost: "
                f"send it with `mtcon-ray track-sync {self.folder.name} --root {self.root}`"
            )

    def _stopped(self, reason: str) -> MtconError:
        line = f"repeat the command with --name {self.folder.name} --resume"
        if reason.startswith("SIG"):
            return Interrupted(f"stopped by {reason}; trials are checkpointed; to go on: {line}")
        return MtconError(f"{reason}; trials are checkpointed; to go on: {line}")


def _winner_tags(results: SweepResults) -> dict[str, str]:
    """What the table of sweeps in the MLflow UI says of each."""
    winner = results.winner
    if winner is None:
        return {}
    return {"mtcon.winner": winner.name, "mtcon.winner.value": f"{winner.value:.4f}"}


def _name(trial: Any) -> str:
    return str(trial.config["trial"])
