"""Audit of a sweep: compares its event log with the files of its trials and the runs in MLflow.

The event log is the record, and runs in MLflow are corrected from it. Losses of the log and of
networks cannot be repaired and are only named.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.base import paths
from mtcon_ray.base.metrics import LOSS
from mtcon_ray.base.status import Status
from mtcon_ray.data.checksums import find_change
from mtcon_ray.data.prepared import SETS_TAG, data_key
from mtcon_ray.errors import CheckpointError, SpecError, SweepError, TrackingError, UserError
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.records.event_log import by_trial, read_events
from mtcon_ray.records.events import Ended, Event, Reported, last_change
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import TrialResult, first_tags, load_sweep, objective_values
from mtcon_ray.tracking import mlflow_server as server
from mtcon_ray.tracking.mlflow_server import PARENT
from mtcon_ray.tracking.own_runs import runs_of
from mtcon_ray.tracking.provenance import CACHE, FINGERPRINT
from mtcon_ray.tracking.sender import DRAIN_SECONDS, Sender, forget_sent, num_unsent
from mtcon_ray.training import checkpoint

SENT = "its events are sent again"


@dataclass(frozen=True)
class Finding:
    """Damage of a record or a contradiction between records. `repair` is its correction, if any."""

    where: str
    problem: str
    repair: str | None = None


class Audit:
    """The records of a sweep. No driver may be writing them.

    Raises SpecError if the recorded spec cannot be read, SweepError if the event log is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, paths.event_file(folder)
        self.spec = load_recorded(folder / paths.SPEC_FILE)
        self.results = load_sweep(folder)
        self._tags = first_tags(folder)

    def records(self) -> Iterator[Finding]:
        """Yields the problems of the event log."""
        if not self.results.events:
            yield Finding(self.log.name, "there are no events")
        yield from (Finding(self.log.name, text) for text in self.results.lost)

    def files(self) -> Iterator[Finding]:
        """Compares files of trials with the event log, and cached images with checksums."""
        key, store = self._tags.get(CACHE), paths.cache_folder(self.folder.parents[1])
        if key and (store / key).exists() and (change := find_change(store / key)):
            way = "delete the folder, and the images are decoded again"
            yield Finding(f"{store.name}/{key}", f"{change}: {way}")
        for trial in self.results.trials:
            yield from self._file_problems(trial)

    def tracking(self, uri: str) -> Iterator[Finding]:
        """Compares MLflow's runs with the log. Raises TrackingError without an answer."""
        if not self.results.events:
            return
        client = server.check_server(uri, way_out="or leave MLflow out with --no-mlflow")
        with server.tracking_errors("cannot read the runs on the tracking server"):
            found = list(self._tracking_problems(client, uri))
        yield from found
        # Such as the files of the report. The driver's machine alone knows what it has sent.
        is_copy = paths.stored_url(self.folder) and not (self.folder / paths.SENT_FILE).exists()
        if not found and not is_copy and (left := num_unsent(self.folder)):
            yield Finding("MLflow", f"{left} events are not sent yet", SENT)

    def repair(self, uri: str) -> None:
        """Sends MLflow what it lacks. Raises StorageError or TrackingError."""
        self._send(uri)
        if any(finding.repair for finding in self.tracking(uri)):
            forget_sent(self.folder)
            self._send(uri)

    def _send(self, uri: str) -> None:
        sender = Sender(self.folder, uri, self.spec.tracking.experiment)
        sender.start()
        if left := sender.close(DRAIN_SECONDS):
            why = f"{left} events of {self.folder.name!r} are not sent yet: {sender.reason}"
            raise TrackingError(f"{why}; solve this and repeat the command")

    def _tracking_problems(self, client: Any, uri: str) -> Iterator[Finding]:
        """Yields the problem of the experiment, or the problems of its runs. Only reads."""
        experiment, runs = self.spec.tracking.experiment, dict[str, list[Any]]()
        if (place := client.get_experiment_by_name(experiment)) is not None:
            try:
                server.check_experiment(place, uri, self.folder.parents[1])
            except UserError as error:
                yield Finding("MLflow", str(error))
                return
        for run in runs_of(client, self.folder, experiment):
            runs.setdefault(run.data.tags.get("mtcon.trial", PARENT), []).append(run)
        for trial, events in by_trial(read_events(self.log)).items():
            name = trial or PARENT
            yield from _run_problems(client, uri, name, events, runs.get(name, []))

    def _file_problems(self, trial: TrialResult) -> Iterator[Finding]:
        folder = self.results.folder_of(trial)
        model, predictions = folder / paths.MODEL_FILE, folder / paths.PREDICTIONS_FILE
        try:
            if model.exists():
                yield from self._model_problems(model, trial)
            elif trial.status is Status.FINISHED and not (folder / paths.REMOVED_FILE).exists():
                yield Finding(self._at(model), "it is missing: the network is lost")
        except (CheckpointError, SpecError, SweepError) as error:
            yield Finding(self._at(model), str(error))
        if predictions.exists() and load_predictions(predictions) is None:
            problem = "it cannot be read: `mtcon-ray evaluate` measures again"
            yield Finding(self._at(predictions), problem)
        if not trial.status.is_final:
            best = self.spec.evaluate.select == "best"
            if damage := checkpoint.load_newest(folder, with_model=best).damage:
                yield Finding(self._at(folder), f"{damage}; a resume repeats what is lost")

    def _model_problems(self, path: Path, trial: TrialResult) -> Iterator[Finding]:
        """Yields findings. Raises CheckpointError for an unreadable or another trial's network."""
        state = checkpoint.load(path)
        with checkpoint.reading(path):
            written, saved = int(state["epoch"]), float(state["value"])
            fingerprint = state["fingerprint"]
        values, epoch = objective_values(trial.reports), trial.model_epoch
        # A kill before the report leaves a newer network. Workers of a distributed trial can leave
        # it too, as they train while Tune stops the trial.
        late = self.spec.resources.worker_range[1] > 1 and trial.status is Status.PRUNED
        states = (path.parent / name for name in (paths.LAST_FILE, paths.PREVIOUS_FILE))
        may_be_newer = late or (not trial.status.is_final and any(map(Path.exists, states)))
        is_selected = written == epoch and repr(saved) == repr(values.get(written))  # also NaN
        # A store gets a network with the next checkpoint, and the trial may be stopped before it.
        is_older = paths.stored_url(self.folder) and trial.status is Status.PRUNED
        is_older = is_older and repr(saved) == repr(values.get(written))
        if not (is_selected or is_older or (may_be_newer and written > (epoch or 0))):
            problem = f"it is of epoch {written} with {saved:.4f}; the event log ends at epoch "
            problem += f"{trial.last_epoch} and selects epoch {epoch or 'none'}"
            yield Finding(self._at(path), problem)
        same = self.spec.trial(trial.params, trial.seed - self.spec.seed)
        sets, key = json.loads(self._tags.get(SETS_TAG, "{}")), data_key(same.data, same.views.size)
        is_base = key == data_key(self.spec.data, self.spec.views.size)
        now = (self._tags.get(FINGERPRINT) if is_base else sets.get(key, [None])[-1]) or fingerprint
        checkpoint.check_same_training(path, state, same, now)

    def _at(self, path: Path) -> str:
        return str(path.relative_to(self.folder))


def _run_problems(
    client: Any, uri: str, name: str, events: list[Event], runs: list[Any]
) -> Iterator[Finding]:
    """Yields differences of a run in MLflow from its events. `runs` has active runs first."""
    where = f"MLflow, run {name}"
    if not runs:
        yield Finding(where, "it is missing", SENT)
        return
    info, num_runs = runs[0].info, sum(r.info.lifecycle_stage == "active" for r in runs)
    if not num_runs:
        command = server.restore_command(uri, "runs", "restore", "--run-id", info.run_id)
        yield Finding(where, f"it is deleted; restore it with {command}, then `audit --repair`")
        return
    if num_runs > 1:
        yield Finding(where, f"it occurs {num_runs} times", SENT)
    last = last_change(events)
    # A killed process could not set the status in MLflow.
    expected = [last.status] if isinstance(last, Ended) else ["RUNNING", "KILLED"]
    if info.status not in expected:
        yield Finding(where, f"it is {info.status} here and {expected[0]} in the event log", SENT)
    # Every trained epoch has a loss. Steps are compared singly.
    steps = [e.epoch for e in events if isinstance(e, Reported) and LOSS in e.metrics]
    there = sorted(entry.step for entry in client.get_metric_history(info.run_id, LOSS))
    if there != steps:
        lost, doubled = len(set(steps) - set(there)), len(there) - len(set(there))
        what = f"of the steps of {LOSS} {lost} are missing, {doubled} doubled"
        yield Finding(where, what, SENT if lost else None)
