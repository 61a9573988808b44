"""What the driver writes down: the sweep's own record, and each trial's beginning and end."""

from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from mtcon_ray.evaluation.spec import selected_epoch
from mtcon_ray.metrics import objective
from mtcon_ray.places import log_folder
from mtcon_ray.results import kept_files, load_sweep
from mtcon_ray.spec import RunSpec
from mtcon_ray.sweep.description import describe_sweep, describe_trial
from mtcon_ray.sweep.study import CONFIGURATION, REPEAT, TRIAL
from mtcon_ray.sweep.trial import Outcome
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Artifact, Ended, Reopened, Reported, Started
from mtcon_ray.tracking.pages import layout
from mtcon_ray.training.checkpoint import discard_resume_state

STATUS = {
    Outcome.FINISHED: "FINISHED",
    Outcome.PRUNED: "KILLED",
    Outcome.FAILED: "FAILED",
    Outcome.INTERRUPTED: "KILLED",
}


class SweepRecord:
    """Appends to `<sweep>/spool/`; the sender carries it to MLflow."""

    def __init__(self, folder: Path, spec: RunSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.parent = EventLog(folder / "spool" / "parent.jsonl")

    def begin(self, tags: dict[str, str]) -> None:
        """Open the parent's record, or open it again on resume."""
        if self.parent.events():
            self.parent.append(Reopened())
            return
        data = self.spec.data
        self.parent.append(
            Started(
                params={},
                tags={"mtcon.sweep": self.folder.name, **tags},
                note=describe_sweep(load_sweep(self.folder), ended=False),
                view=layout(
                    self.folder.name,
                    tuple(self.spec.search.space),
                    data.tasks,
                    map(data.kind_of, data.tasks),
                    self.spec.evaluate.select,
                ),
            )
        )
        for name in ("spec.yaml", "plan.json"):
            self.parent.append(Artifact(path=str(self.folder / name), to=""))

    def end(self, status: str, report: Path | None, **tags: str) -> None:
        """Close the parent's record, its report's files beside it."""
        for file in sorted(report.parent.iterdir()) if report else ():
            self.parent.append(Artifact(path=str(file), to="report"))
        note = describe_sweep(load_sweep(self.folder), ended=report is not None)
        self.parent.append(Ended(status=status, tags=tags, note=note))

    def trial_started(self, trial: FrozenTrial) -> None:
        """Open a trial's record with what it is, or open it again."""
        spool = self.spool(trial)
        if spool.events():
            spool.append(Reopened())
            return
        repeat = trial.user_attrs[REPEAT]
        spool.append(
            Started(
                params=trial.params,
                note=describe_trial(self.checkpoints(trial), log_folder(self.folder)),
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

    def trial_ended(self, trial: FrozenTrial, outcome: Outcome, reason: str | None) -> None:
        """Close a trial's record; a finished one's files become artifacts.

        What only a trial that goes on needs is removed, unless this one is interrupted.
        """
        spool, folder = self.spool(trial), self.checkpoints(trial)
        if outcome is Outcome.FINISHED:
            for file in kept_files(folder):
                spool.append(Artifact(path=str(file), to="checkpoints"))
        if outcome is not Outcome.INTERRUPTED:
            discard_resume_state(folder, failed=outcome is Outcome.FAILED)
        tags: dict[str, Any] = self._selected(spool)
        if outcome in (Outcome.PRUNED, Outcome.INTERRUPTED):
            tags[f"mtcon.{outcome}"] = "true"
        if reason:
            tags["mtcon.reason"] = reason[:4000]
        spool.append(Ended(status=STATUS[outcome], tags=tags))

    def _selected(self, spool: EventLog) -> dict[str, str]:
        """Tags with the epoch of the trial's network and its value; MLflow shows the last epoch."""
        probed = {e.epoch: objective(e.metrics) for e in spool.events() if isinstance(e, Reported)}
        values = {epoch: value for epoch, value in probed.items() if value is not None}
        epoch = selected_epoch(values, self.spec.evaluate.select)
        if epoch is None:
            return {}
        return {"mtcon.model_epoch": str(epoch), "mtcon.value": f"{values[epoch]:.4f}"}

    def spool(self, trial: FrozenTrial) -> EventLog:
        """The record of one trial."""
        return EventLog(self.spool_of(trial.user_attrs[TRIAL]))

    def spool_of(self, name: str) -> Path:
        """The file of a trial's record."""
        return self.folder / "spool" / f"{name}.jsonl"

    def checkpoints(self, trial: FrozenTrial) -> Path:
        """The folder of one trial's checkpoints."""
        return self.folder / "checkpoints" / str(trial.user_attrs[TRIAL])

    def epochs(self, trial: FrozenTrial) -> int:
        """The trial's own budget."""
        return int(trial.params.get("train.epochs", self.spec.train.epochs))
