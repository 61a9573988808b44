"""A sweep whose study, event logs and files agree, written as a driver and its trials do."""

import json
from pathlib import Path

import yaml

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import checkpoint_folder, journal_file, parent_log
from mtcon_ray.base.status import Status
from mtcon_ray.evaluation.predictions import Predictions, save_predictions
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Reported, Started
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.searcher import report_missing, tell
from mtcon_ray.sweep.study import Suggester, open_study
from mtcon_ray.tracking.provenance import FINGERPRINT
from mtcon_ray.training import checkpoint

EPOCHS = 3
DATA = "a" * 32
# Trials 0 to 2; the last one was interrupted after its first epoch.
OUTCOMES = (Status.FINISHED, Status.PRUNED, Status.INTERRUPTED)
LENGTHS = (3, 2, 1)


def value(number: int, epoch: int) -> float:
    return 0.1 * number + 0.01 * epoch


def save_model(folder: Path, spec: RunSpec, epoch: int, value: float, name: str) -> None:
    text = json.dumps(dump_spec(spec))
    state = {"spec": text, "fingerprint": DATA, "epoch": epoch, "value": value}
    checkpoint.save(folder / name, state)


def write_sweep(folder: Path) -> None:
    """Writes a sweep of three trials whose records agree."""
    spec = parse_spec(
        {
            "name": "shoes",
            "train": {"epochs": EPOCHS},
            "search": {"space": {"train.lr": {"grid": [0.1, 0.2, 0.3]}}, "sampler": "grid"},
        }
    )
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    EventLog(parent_log(folder)).append(Started(params={}, tags={FINGERPRINT: DATA}))
    study, record = open_study(journal_file(folder), folder.name), SweepRecord(folder, spec)
    suggester = Suggester(study, spec.search, spec.seed)
    for number, (outcome, length) in enumerate(zip(OUTCOMES, LENGTHS, strict=True)):
        trial = suggester.next()
        assert trial is not None
        record.trial_started(trial)
        place = checkpoint_folder(folder, f"trial-{number:04d}")
        place.mkdir(parents=True)
        own = spec.trial(trial.params)
        for epoch in range(1, length + 1):
            told = {"loss": 1.0 / epoch, MEAN_ACCURACY: value(number, epoch)}
            record.spool(trial).append(Reported(epoch=epoch, metrics=told))
        save_model(place, own, length, value(number, length), "model.pt")
        if outcome is Status.FINISHED:
            save_predictions(place / "predictions.npz", Predictions(DATA, {}))
        if outcome is Status.INTERRUPTED:
            checkpoint.save(place / "last.pt", {"best": None})
        report_missing(study, trial, record.values(trial))
        tell(study, trial, outcome, value(number, length), None)
        record.trial_ended(trial, outcome, None)


def give(folder: Path, name: str, configuration: int = 0) -> None:
    """Writes a trial of this name and configuration to the study alone."""
    trial = open_study(journal_file(folder), folder.name).ask()
    for key, told in (("configuration", configuration), ("repeat", 0), ("trial", name)):
        trial.set_user_attr(f"mtcon.{key}", told)
