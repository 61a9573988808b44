"""Audit of a sweep or training: compares its records, and repairs a record from another one.

A trial has four records: the study's journal, its event log, its files, and its run in MLflow. The
event log is written first and durably, so study and MLflow are corrected from it. Event logs and
networks cannot be corrected from another record, so the audit only names their losses.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from optuna.trial import FrozenTrial, TrialState

from mtcon_ray.base.paths import (
    LAST_FILE,
    MODEL_FILE,
    PREDICTIONS_FILE,
    PREVIOUS_FILE,
    REMOVED_FILE,
    SPEC_FILE,
    cache_folder,
    checkpoint_folder,
    event_folder,
    journal_file,
    sweeps_folder,
)
from mtcon_ray.base.status import Status
from mtcon_ray.data.checksums import find_change
from mtcon_ray.errors import CheckpointError, SpecError, SweepError
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.records.event_log import EventLog, cut_torn_line, is_torn
from mtcon_ray.records.events import Ended, Event, Reported, Started, last_change
from mtcon_ray.records.lost import lost_parts, shown
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import budget_of, objective_values, reports_of, trial_status
from mtcon_ray.spec.evaluate import selected_epoch, selected_value
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import ENDS, discard_leftovers, settle
from mtcon_ray.sweep.study import CONFIGURATION, REPEAT, TRIAL, named_trials, open_study, read_study
from mtcon_ray.tracking.cursors import forget_sent
from mtcon_ray.tracking.provenance import CACHE, FINGERPRINT
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.tracking.tracked import Tracked, tracked_runs
from mtcon_ray.training import checkpoint

PARENT = "parent"
# Metric of every trained epoch. Its steps are compared singly.
LOSS = "loss"
CUT, SETTLED, SENT = "the line is cut off", "the study takes it over", "its events are sent again"
REMOVED, ENDED = "it is removed", "the event log gets the study's end"


@dataclass(frozen=True)
class Finding:
    """Damage of a record or a contradiction between records. `repair` is its correction, if any."""

    where: str
    problem: str
    repair: str | None = None


class Audit:
    """The records of a folder. No driver may be writing them.

    Raises SpecError if the recorded spec cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec: RunSpec = load_recorded(folder / SPEC_FILE)
        self.is_sweep = folder.parent.name == sweeps_folder(Path()).name
        self.logs: dict[str, list[Event]] = {}
        self._damaged = [*self._read_logs()]

    def records(self) -> list[Finding]:
        """Compares event logs and study, without reading networks or MLflow."""
        found = list(self._damaged)
        for name, events in self.trials.items():
            parts = lost_parts(events, may_end_early=self.spec.may_end_early)
            found += [Finding(_log(name), text) for text in parts]
        return [*found, *self._study_problems()] if self.is_sweep else found

    def files(self) -> list[Finding]:
        """Compares files of trials with the event logs, and cached images with checksums."""
        found = [*self._image_problems()]
        for name, events in self.trials.items():
            found += self._file_problems(name, events)
        return found

    def tracking(self, uri: str) -> list[Finding]:
        """Compares MLflow's runs with the event logs. Raises TrackingError without an answer."""
        if PARENT not in self.logs:
            return []
        runs, problem = tracked_runs(self.folder, uri, self.spec.tracking.experiment, LOSS)
        found = [Finding("MLflow", problem)] if problem else []
        for name, events in self.logs.items():
            run = runs.get(name)
            if not (problem and run and run.restore):  # it was deleted with the experiment
                found += _run_problems(name, events, run)
        return found

    def repair(self, found: Iterable[Finding], uri: str) -> None:
        """Makes the repairs of these findings. Raises StorageError or TrackingError."""
        ways = {finding.repair for finding in found}
        if CUT in ways:
            for path in self._lines():
                cut_torn_line(path)
        if self.is_sweep and ways & {CUT, SETTLED, ENDED, REMOVED}:
            study = open_study(journal_file(self.folder), self.folder.name)
            record = SweepRecord(self.folder, self.spec)
            settle(study, record)
            discard_leftovers(study, record)
        elif REMOVED in ways:
            checkpoint.discard_resume_state(self.folder)
        if SENT in ways:
            forget_sent(self.folder)
            Sender(self.folder, uri, self.spec.tracking.experiment).sync()

    @cached_property
    def trials(self) -> dict[str, list[Event]]:
        """The event logs of trials, or the only log of a single training."""
        return {n: events for n, events in self.logs.items() if not self.is_sweep or n != PARENT}

    def _begun_with(self, tag: str) -> str | None:
        """Returns a tag of the sweep's or training's start event."""
        start = next(iter(self.logs.get(PARENT, ())), None)
        return start.tags.get(tag) if isinstance(start, Started) else None

    def _image_problems(self) -> Iterator[Finding]:
        """Yields changes of the decoded images, unless the images were removed."""
        key = self._begun_with(CACHE)
        folder = cache_folder(self.folder.parents[1]) / key if key else None
        if folder and folder.exists() and (change := find_change(folder)):
            problem = f"{change}: delete the folder, and the images are decoded again"
            yield Finding(f"{folder.parent.name}/{key}", problem)

    def _lines(self) -> list[Path]:
        """Returns the files that consist of lines: event logs and the study's journal."""
        logs = sorted(event_folder(self.folder).glob("*.jsonl"))
        return [*logs, *(p for p in (journal_file(self.folder),) if p.exists())]

    def _read_logs(self) -> Iterator[Finding]:
        alone = not self.is_sweep
        for path in self._lines():
            where = str(path.relative_to(self.folder))
            if is_torn(path):
                yield Finding(where, "its last line is cut", CUT)
            if path == journal_file(self.folder):
                continue
            try:
                events = EventLog.read(path)
                if events and isinstance(events[0], Started) and (path.stem != PARENT or alone):
                    budget_of(path.stem, events[0])
            except SweepError as error:
                yield Finding(where, f"it is damaged: {error}")
                continue
            if events and isinstance(events[0], Started):
                self.logs[path.stem] = events
            else:
                yield Finding(where, "its beginning is missing: its metrics are lost")
        if PARENT not in self.logs and not self._lines():
            yield Finding(event_folder(self.folder).name, "there is no event log")

    def _study_problems(self) -> Iterator[Finding]:
        where = journal_file(self.folder).name
        try:
            study = read_study(journal_file(self.folder), self.folder.name)
        except SweepError as error:
            yield Finding(where, f"it is damaged: {error}")
            return
        trials = named_trials(study)
        names = {t.user_attrs[TRIAL] for t in trials}
        places = Counter((t.user_attrs[CONFIGURATION], t.user_attrs[REPEAT]) for t in trials)
        last = {t.number for t in trials}
        for t in study.get_trials(deepcopy=False):
            # A failed trial and its retry have the same name.
            if TRIAL in t.user_attrs and t.number not in last and t.state is not TrialState.FAIL:
                yield Finding(where, f"{t.user_attrs[TRIAL]} occurs twice")
        for (configuration, repeat), count in places.items():
            if count > 1:
                yield Finding(
                    where, f"configuration {configuration}, repeat {repeat} occurs {count} times"
                )
        for name in sorted(self.trials.keys() - names):
            yield Finding(where, f"it lacks {name}, which has an event log")
        for trial in trials:
            yield from self._trial_problems(trial, where)

    def _trial_problems(self, trial: FrozenTrial, where: str) -> Iterator[Finding]:
        name: str = trial.user_attrs[TRIAL]
        if name not in self.trials:
            # A trial may have a name without a start.
            if trial.state in ENDS and not any(f.where == _log(name) for f in self._damaged):
                yield Finding(_log(name), "it is missing: its metrics are lost")
            return
        events = self.trials[name]
        start, values = events[0], objective_values(reports_of(events))
        if isinstance(start, Started) and dict(start.params) != trial.params:
            logged = dict(start.params)
            yield Finding(where, f"{name} has {trial.params} here and {logged} in its event log")
        value = selected_value(values, self.spec.evaluate.select)
        yield from _status_problems(name, where, trial, events, value)
        last = max(values, default=0)
        if lost := [epoch for epoch in sorted(trial.intermediate_values) if epoch > last]:
            yield Finding(_log(name), f"it ends before these epochs of the study: {shown(lost)}")
        is_open = trial.state is TrialState.RUNNING
        for epoch, recorded in values.items():
            told = trial.intermediate_values.get(epoch)
            if told is None or not _same(told, recorded):
                there = "no value" if told is None else f"{told:.4f}"
                yield Finding(
                    where,
                    f"{name} has {there} at epoch {epoch} here and {recorded:.4f} in its event log",
                    SETTLED if is_open and told is None else None,
                )

    def _file_problems(self, name: str, events: list[Event]) -> Iterator[Finding]:
        folder = checkpoint_folder(self.folder, name) if self.is_sweep else self.folder
        status, _ = trial_status(events)
        model, predictions = folder / MODEL_FILE, folder / PREDICTIONS_FILE
        left = [p for p in (folder / LAST_FILE, folder / PREVIOUS_FILE) if p.exists()]
        try:
            if model.exists():
                yield from self._model_problems(model, events)
            elif status is Status.FINISHED and not (folder / REMOVED_FILE).exists():
                yield Finding(self._at(model), "it is missing: the network is lost")
        except (CheckpointError, SpecError, SweepError) as error:
            yield Finding(self._at(model), str(error))
        if predictions.exists():
            found, data = load_predictions(predictions), self._begun_with(FINGERPRINT)
            if found is None or found.fingerprint != (data or found.fingerprint):
                what = "it cannot be read" if found is None else "it is of other data"
                yield Finding(self._at(predictions), f"{what}: `mtcon-ray evaluate` measures again")
        if status.is_final and model.exists():
            for path in left:
                yield Finding(self._at(path), "its training has ended", REMOVED)
        elif not status.is_final:
            best = self.spec.evaluate.select == "best"
            if damage := checkpoint.load_newest(folder, with_model=best).damage:
                yield Finding(self._at(folder), f"{damage}; a resume repeats what is lost")

    def _model_problems(self, path: Path, events: list[Event]) -> Iterator[Finding]:
        """Yields findings. Raises CheckpointError for an unreadable or another trial's network."""
        start = events[0]
        assert isinstance(start, Started)
        state = checkpoint.load(path)
        checkpoint.check_types(path, state, {"fingerprint": str, "epoch": int, "value": float})
        values = objective_values(reports_of(events))
        epoch = selected_epoch(values, self.spec.evaluate.select)
        written: int = state["epoch"]
        # The network is written before the event, so a kill in between leaves a newer network.
        # Workers of a distributed trial can leave it too, as they train while Tune stops the trial.
        status, _ = trial_status(events)
        is_newer = not status.is_final and written > (epoch or 0)
        if status is Status.PRUNED and self.spec.resources.worker_range[1] > 1:
            last = max(values, default=0)
            is_newer = last < written <= last + self.spec.evaluate.every
        if not is_newer and (written != epoch or not _same(state["value"], values[epoch])):
            chosen = "none" if epoch is None else f"epoch {epoch} with {values[epoch]:.4f}"
            problem = f"it is of epoch {written} with {state['value']:.4f}; the event log selects "
            yield Finding(self._at(path), problem + chosen)
        repeat = int(start.tags["mtcon.seed"]) - self.spec.seed
        own = self.spec.trial(start.params, repeat) if self.is_sweep else self.spec
        whole = parse_spec(checkpoint.spec_in(path, state), where=str(path))
        data = self._begun_with(FINGERPRINT) or state["fingerprint"]
        saved = {**dump_spec(whole), "data fingerprint": state["fingerprint"]}
        current = {**dump_spec(own), "data fingerprint": data}
        checkpoint.check_same_training(path, saved, current)

    def _at(self, path: Path) -> str:
        return str(path.relative_to(self.folder))


def what_is_lost(folder: Path) -> list[str]:
    """Returns the problems of event logs and study without an automatic repair."""
    found = Audit(folder).records()
    return [f"{f.where}: {f.problem}" for f in found if f.repair is None]


def _log(name: str) -> str:
    """Returns the path of an event log within its folder."""
    return f"{event_folder(Path()).name}/{name}.jsonl"


def _status_problems(
    name: str, where: str, trial: FrozenTrial, events: list[Event], value: float | None
) -> Iterator[Finding]:
    """Yields differences of the state and the value of a trial."""
    status, _ = trial_status(events)
    finite = value is not None and math.isfinite(value)
    known = {Status.PRUNED: TrialState.PRUNED, Status.FINISHED: TrialState.COMPLETE}
    state = known.get(status, TrialState.FAIL) if finite else TrialState.FAIL
    told = trial.state.name.lower()
    if trial.state in ENDS and not status.is_final:
        repair = None if isinstance(last_change(events), Ended) else ENDED
        yield Finding(where, f"{name} is {told} here, but its event log has no end", repair)
    elif trial.state not in ENDS and status.is_final:
        yield Finding(where, f"{name} is {told} here and {status.words} in its event log", SETTLED)
    elif trial.state in ENDS and trial.state is not state:
        yield Finding(where, f"{name} is {told} here and {status.words} in its event log")
    elif trial.state is TrialState.COMPLETE and not _same(trial.value, value):
        yield Finding(where, f"{name} has value {trial.value} here and {value} in its event log")


def _run_problems(name: str, events: list[Event], run: Tracked | None) -> Iterator[Finding]:
    """Yields differences of a run in MLflow from its event log."""
    where = f"MLflow, run {name}"
    if run is None:
        yield Finding(where, "it is missing", SENT)
        return
    if run.restore:
        yield Finding(where, f"it is deleted; restore it with {run.restore}, then `track-sync`")
        return
    if run.num_runs > 1:
        yield Finding(where, f"it occurs {run.num_runs} times", SENT)
    last = last_change(events)
    # A killed process could not set the status in MLflow.
    expected = [last.status] if isinstance(last, Ended) else ["RUNNING", "KILLED"]
    if run.status not in expected:
        yield Finding(where, f"it is {run.status} here and {expected[0]} in its event log", SENT)
    reports = [e for e in events if isinstance(e, Reported)]
    steps = [e.epoch for e in reports if LOSS in e.metrics]
    if list(run.steps) != steps:
        lost, doubled = set(steps) - set(run.steps), len(run.steps) - len(set(run.steps))
        what = f"of the steps of {LOSS} {len(lost)} are missing, {doubled} doubled"
        yield Finding(where, what, SENT if lost else None)
    values = {n: v for e in reports for n, v in e.metrics.items()}
    # MLflow stores the largest number for infinity.
    wrong = [
        n
        for n, v in values.items()
        if n not in run.metrics or not (math.isinf(v) or _same(v, run.metrics[n]))
    ]
    if wrong:
        missing = all(n not in run.metrics for n in wrong)
        what = "missing" if missing else "not of the last epoch"
        yield Finding(where, f"metrics are {what}: {shown(sorted(wrong))}", SENT)


def _same(one: float | None, other: float | None) -> bool:
    """Returns True if both values are equal, both NaN or both missing."""
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))
