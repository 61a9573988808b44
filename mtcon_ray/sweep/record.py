"""Writer of the driver's events: all events of the sweep, and each trial's start and end."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from optuna.trial import FrozenTrial

from mtcon_ray.base.paths import checkpoint_folder, kept_model, parent_log, trial_log
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Reopened, Reported, Started
from mtcon_ray.records.results import (
    kept_files,
    load_sweep,
    objective_values,
    reports_of,
    trial_status,
)
from mtcon_ray.spec.evaluate import selected_epoch
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.description import describe_sweep
from mtcon_ray.sweep.study import CONFIGURATION, REPEAT, TRIAL
from mtcon_ray.tracking.provenance import fixed_settings
from mtcon_ray.training.checkpoint import discard_resume_state

# Prefixes of the winner's metrics that are also in the sweep's own run.
OF_THE_WINNER = ("val/", "test/", "heldout/")


class SweepRecord:
    """Writer of the event logs in `<sweep>/spool/`, which the sender sends to MLflow."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.parent = EventLog(parent_log(folder))

    def start(self, tags: dict[str, str]) -> Started:
        """Returns the sweep's start event."""
        return Started(
            params={},
            tags={"mtcon.sweep": self.folder.name, **tags},
            note=describe_sweep(load_sweep(self.folder), ended=False),
            settings=fixed_settings(self.spec),
        )

    def end(self, status: str, report: Path | None, **tags: str) -> None:
        """Writes the winner's scores, the sweep's end event and the report's files.

        With a report the winner is named in tags, which the MLflow UI shows in its table of sweeps.
        """
        results = load_sweep(self.folder)
        if (winner := results.winner) is not None and winner.value is not None:
            known = {**winner.last_metrics, **winner.probe_values}
            scores = {name: v for name, v in known.items() if name.startswith(OF_THE_WINNER)}
            scores[results.labels.objective] = winner.value
            self._report_scores(scores, sum(trial.status.is_final for trial in results.trials))
            if report:
                tags |= {"mtcon.winner": winner.name, "mtcon.winner.value": f"{winner.value:.4f}"}
        note = describe_sweep(results, ended=report is not None)
        self.parent.append(Ended(status=status, tags=tags, note=note))
        # After the end: events are sent in order, and a store of files may not answer.
        for file in sorted(report.parent.iterdir()) if report else ():
            self.parent.append(Artifact(path=str(file), to="report"))

    def _report_scores(self, scores: dict[str, float], num_ended: int) -> None:
        """Writes the winner's scores, with the number of ended trials as their step.

        Changed scores get at least the last step plus 1, because a retry of failed trials does not
        raise the number and the event log has each step once.
        """
        new = Reported(epoch=num_ended, metrics=scores)
        last = next((e for e in reversed(self.parent.events()) if isinstance(e, Reported)), None)
        # Compared as JSON, because NaN does not equal itself.
        if last and last.to_json()["metrics"] != new.to_json()["metrics"]:
            new = replace(new, epoch=max(num_ended, last.epoch + 1))
        self.parent.append(new)

    def trial_started(self, trial: FrozenTrial) -> None:
        """Writes a trial's start event, or a reopen event if it has started before."""
        spool = self.spool(trial)
        if spool.events():
            spool.append(Reopened())
            return
        repeat = trial.user_attrs[REPEAT]
        spool.append(
            Started(
                params=trial.params,
                tags={
                    "mtcon.trial": trial.user_attrs[TRIAL],
                    "mtcon.sweep": self.folder.name,
                    "mtcon.configuration": str(trial.user_attrs[CONFIGURATION]),
                    "mtcon.epochs": str(self.epochs(trial)),
                    "mtcon.seed": str(self.spec.seed + repeat),
                    "mtcon.checkpoints": str(self.checkpoints(trial)),
                },
            )
        )

    def trial_ended(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        """Writes a trial's end event. A finished trial's files become artifacts.

        Removes its resume state unless the trial was interrupted.
        """
        spool, folder = self.spool(trial), self.checkpoints(trial)
        tags: dict[str, str] = {}
        values = self.values(trial)
        epoch = selected_epoch(values, self.spec.evaluate.select)
        if epoch is not None:  # MLflow itself shows the last epoch
            tags = {"mtcon.model_epoch": str(epoch), "mtcon.value": f"{values[epoch]:.4f}"}
        if outcome in (Status.PRUNED, Status.INTERRUPTED):
            tags[f"mtcon.{outcome.lower()}"] = "true"
        if reason:
            tags["mtcon.reason"] = reason[:4000]
        spool.append(Ended(status=outcome.mlflow, tags=tags))
        # After the end event: else a kill in between would restart the trial from epoch 1.
        if outcome is not Status.INTERRUPTED:
            discard_resume_state(folder)
        # With `storage.keep` a network may be removed before it is sent, see `send_kept`.
        if self.spec.storage.keep is None:
            self._send_files(spool, folder, outcome)

    def send_kept(self, trials: Iterable[FrozenTrial]) -> None:
        """Records the files of ended trials as artifacts, once, if their network still exists."""
        for trial in trials:
            spool, folder = self.spool(trial), self.checkpoints(trial)
            events = spool.events()
            is_sent = any(isinstance(event, Artifact) for event in events)
            if not is_sent and kept_model(folder).exists():
                self._send_files(spool, folder, trial_status(events)[0])

    def _send_files(self, spool: EventLog, folder: Path, outcome: Status) -> None:
        if self.spec.tracking.sends_files_of(outcome):
            for file in kept_files(folder):
                spool.append(Artifact(path=str(file), to="checkpoints"))

    def spool(self, trial: FrozenTrial) -> EventLog:
        """Returns the event log of a trial."""
        return EventLog(trial_log(self.folder, trial.user_attrs[TRIAL]))

    def checkpoints(self, trial: FrozenTrial) -> Path:
        """Returns the directory of a trial's checkpoints."""
        return checkpoint_folder(self.folder, str(trial.user_attrs[TRIAL]))

    def epochs(self, trial: FrozenTrial) -> int:
        """Returns the trial's own number of epochs."""
        return int(trial.params.get("train.epochs", self.spec.train.epochs))

    def values(self, trial: FrozenTrial) -> dict[int, float]:
        """Returns the values of the objective in the trial's event log, by epoch."""
        return objective_values(reports_of(self.spool(trial).events()))
