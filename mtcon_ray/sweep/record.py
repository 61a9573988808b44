"""The record of a sweep: the event log, and what it says of each trial.

The driver alone writes it. A resumed driver reads the log and each trial's checkpoint, and nothing
else.
"""

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mtcon_ray.base.metrics import OBJECTIVE, objective
from mtcon_ray.base.paths import checkpoint_folder, event_file, stored_url, trial_number
from mtcon_ray.base.status import Status
from mtcon_ray.records import events
from mtcon_ray.records.event_log import EventLog, read_events
from mtcon_ray.records.results import TrialResult, load_sweep, started, trial_status
from mtcon_ray.spec.evaluate import Select, selected_epoch
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.tracking.provenance import fixed_settings
from mtcon_ray.training.checkpoint import discard_other_training, discard_resume_state
from mtcon_ray.training.uploads import kept_files

# Prefixes of the winner's metrics that are also in the sweep's own run.
OF_THE_WINNER = ("val/", "test/", "heldout/", "head/")


@dataclass
class Trial:
    """The state of a trial by the event log. `values` has the objective by probed epoch.

    `params` are the searched values in Optuna's form. `num_lost` counts the losses of its process
    since the sweep's last start, `num_tries` grows with each process. `epochs` is its own budget.
    """

    name: str
    number: int
    params: dict[str, Any]
    seed: int
    epochs: int
    select: Select = "last"
    status: Status = Status.RUNNING
    reason: str | None = None
    last_epoch: int = 0
    values: dict[int, float] = field(default_factory=dict)
    num_lost: int = 0
    num_tries: int = 0
    num_artifacts: int = 0
    time_ms: int = 0

    @property
    def value(self) -> float | None:
        """The objective of the selected epoch, None before the first probe."""
        return self.values.get(selected_epoch(self.values, self.select) or 0)

    @property
    def is_open(self) -> bool:
        """True if the trial has more epochs to train."""
        return not self.status.is_final

    def add(self, event: events.Event) -> None:
        """Takes over an event of this trial."""
        self.time_ms = max(self.time_ms, event.time_ms)
        match event:
            case events.Reported():
                self.last_epoch = event.epoch
                if (value := objective(event.metrics)) is not None:
                    self.values[event.epoch] = value
            case events.Lost():
                self.num_lost += event.counts
            case events.Artifact():
                self.num_artifacts += 1
            case events.Started() | events.Reopened() | events.Ended():
                self.num_tries += 1
                self.status, self.reason = trial_status([event])


class SweepRecord:
    """Writer of a sweep's event log, with the trials in it. Raises SweepError if it is damaged."""

    def __init__(self, folder: Path, spec: RunSpec, log: EventLog | None = None) -> None:
        self.folder, self.spec = folder, spec
        self.log = log or EventLog(event_file(folder))
        self.trials: dict[str, Trial] = {}
        self.earlier: list[events.Earlier] = []
        self.reports: list[tuple[str, int]] = []  # trial and epoch of each probe, in order
        for event in read_events(self.log.path):
            self._add(event)

    def _add(self, event: events.Event) -> None:
        if isinstance(event, events.Earlier):
            self.earlier.append(event)
        if event.trial is None:
            return
        if event.trial not in self.trials:
            start, epochs, seed = started([event])
            of = event.trial, trial_number(event.trial), dict(start.params), seed, epochs
            self.trials[event.trial] = Trial(*of, self.spec.evaluate.select)
        trial = self.trials[event.trial]
        trial.add(event)
        if isinstance(event, events.Reported) and event.epoch in trial.values:
            self.reports.append((trial.name, event.epoch))

    def append(self, event: events.Event, *more: events.Event) -> None:
        """Writes events durably in one step. The first is not before its trial's last event."""
        if event.trial in self.trials:
            event = replace(event, time_ms=self.trials[event.trial].time_ms)
        for written in self.log.append(event, *more):
            self._add(written)

    def begin(self, tags: dict[str, str], files: list[Path], earlier: list[events.Earlier]) -> None:
        """Writes the start or the resume of the sweep, with the files that describe it."""
        known = {event.source for event in self.earlier}
        fresh = [event for event in earlier if event.source not in known]
        if self.log.end:
            self.append(events.Reopened(), *fresh)
            for trial in self.trials.values():
                trial.num_lost = 0
        else:
            tags = {"mtcon.sweep": self.folder.name, **tags}
            start = events.Started(params={}, tags=tags, settings=fixed_settings(self.spec))
            self.append(start, *fresh)
        # Also after a resume, which may write other files. They replace MLflow's files.
        for file in files:
            self.append(events.Artifact(path=str(file), to=""))

    def start(self, name: str, params: dict[str, Any], configuration: int, repeat: int) -> Trial:
        """Writes the start of a new trial and returns the trial."""
        files = checkpoint_folder(self.folder, name)
        tags = {
            "mtcon.configuration": str(configuration),
            "mtcon.epochs": str(int(params.get("train.epochs", self.spec.train.epochs))),
            "mtcon.seed": str(self.spec.seed + repeat),
            "mtcon.checkpoints": stored_url(files) or str(files),
        }
        method = self.spec.method.model_dump(mode="json", include={"name", "weighting"})
        settings = {f"method.{field}": value for field, value in method.items()}
        self.append(events.Started(trial=name, params=params, tags=tags, settings=settings))
        trial = self.trials[name]
        # A log that was cut before a start may leave the checkpoint of another configuration.
        discard_other_training(files, self.spec.trial(params, repeat))
        return trial

    def reopen(self, trial: Trial) -> None:
        """Writes the resume of a trial."""
        self.append(events.Reopened(trial=trial.name))

    def report(self, trial: Trial, lines: list[str]) -> list[events.Reported]:
        """Writes the epochs that the log lacks, as they were sent, and returns them.

        Writes nothing after the trial's end, because workers of a stopped trial may train on for a
        moment. The lines are durable a second later.
        """
        fresh: dict[str, events.Reported] = {}
        last = trial.last_epoch
        for line in lines:
            event = events.from_line(line)
            assert isinstance(event, events.Reported), f"a report is expected, got {line!r:.200}"
            if event.epoch > last and trial.is_open:
                fresh[line], last = event, event.epoch
        if fresh:
            self.log.append_lines(fresh)
        for event in fresh.values():
            self._add(event)
        return list(fresh.values())

    def end_trial(self, trial: Trial, outcome: Status, reason: str | None) -> None:
        """Writes a trial's end."""
        tags: dict[str, str] = {}
        # MLflow itself shows the last epoch.
        if (epoch := selected_epoch(trial.values, self.spec.evaluate.select)) is not None:
            tags = {"mtcon.model_epoch": str(epoch), "mtcon.value": f"{trial.values[epoch]:.4f}"}
        if outcome in (Status.PRUNED, Status.INTERRUPTED):
            tags[f"mtcon.{outcome.lower()}"] = "true"
        if reason:
            tags["mtcon.reason"] = reason[:4000]
        self.append(events.Ended(trial=trial.name, status=outcome.mlflow, tags=tags))

    def tidy(self, trial: Trial, *, at_end: bool = False) -> None:
        """Removes an ended trial's resume state and records its files as artifacts, once.

        A failed trial keeps the state if its values choose the network: a GPU repeats no value.
        No process of the trial may run. With `storage.keep` files are recorded only `at_end`, of
        the sweep: before it a network may be removed before it is sent.
        """
        folder = checkpoint_folder(self.folder, trial.name)
        if trial.status is not Status.FAILED or self.spec.evaluate.select == "last":
            discard_resume_state(folder)
        is_due = not trial.num_artifacts and (at_end or self.spec.storage.keep is None)
        if is_due and self.spec.tracking.sends_files_of(trial.status):
            kept = kept_files(folder)
            if files := [events.Artifact(trial=trial.name, path=f, to="checkpoints") for f in kept]:
                self.append(*files)

    def end(self, status: str, report: Path | None, **tags: str) -> None:
        """Writes the winner's scores, the sweep's end and the report's files.

        With a report the winner is named in tags, which the MLflow UI shows in its table of sweeps.
        """
        results = load_sweep(self.folder)
        if (winner := results.winner) is not None and winner.value is not None:
            known = {**winner.last_metrics, **winner.probe_values}
            scores = {name: v for name, v in known.items() if name.startswith(OF_THE_WINNER)}
            scores[results.labels.objective] = winner.value
            # With a step of its own: MLflow keeps the first value of a step.
            step = 1 + sum(isinstance(event, events.Reported) for event in results.events)
            self.append(events.Reported(epoch=step, metrics=scores))
            if report:
                tags |= {"mtcon.winner": winner.name, "mtcon.winner.value": f"{winner.value:.4f}"}
        # After the end: events are sent in order, and a store of files may not answer.
        pages = sorted(report.parent.iterdir()) if report else ()
        files = [events.Artifact(path=str(file), to="report") for file in pages]
        self.append(events.Ended(status=status, tags=tags), *files)

    def is_done(self, trial: Trial) -> bool:
        """Returns True if the log has the last epoch of a trial, which may be at a plateau."""
        if trial.last_epoch >= trial.epochs:
            return True
        finite = [epoch for epoch, value in trial.values.items() if math.isfinite(value)]
        best = max(finite, key=lambda epoch: trial.values[epoch], default=0)
        patience = trial.params.get("train.patience", self.spec.train.patience)
        own = {"patience": patience and int(patience)}  # a listed "3" is a number too
        train, at_probe = self.spec.train.model_copy(update=own), trial.last_epoch in trial.values
        return at_probe and train.is_plateau(trial.last_epoch - best)

    def result(self, trial: Trial) -> TrialResult:
        """Returns a trial as a result with only its values."""
        reports = tuple((epoch, {OBJECTIVE: value}) for epoch, value in trial.values.items())
        of = trial.name, trial.number, trial.params, trial.status, trial.reason, trial.epochs
        early = self.spec.may_end_early
        return TrialResult(*of, trial.seed, reports, trial.select, may_end_early=early)
