"""A sweep whose event log and files agree, written as a driver and its trials do."""

import json
from pathlib import Path

from mtcon_ray.base.paths import checkpoint_folder, event_file
from mtcon_ray.base.status import Status
from mtcon_ray.evaluation.predictions import save_predictions
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Started
from mtcon_ray.records.recorded import load_recorded, write_beginnings
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.suggester import Suggester
from mtcon_ray.tracking.provenance import FINGERPRINT
from mtcon_ray.training import checkpoint
from tests.recorded import plan_with
from tests.some import some
from tests.sweep.simulated import lines

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


def record_of(folder: Path) -> SweepRecord:
    return SweepRecord(folder, load_recorded(folder / "spec.yaml"))


def write_sweep(folder: Path) -> None:
    """Writes a sweep of three trials whose records agree."""
    search = {"space": {"train.lr": {"grid": [0.1, 0.2, 0.3]}}, "sampler": "grid"}
    spec = parse_spec({"name": "shoes", "train": {"epochs": EPOCHS}, "search": search})
    folder.mkdir(parents=True)
    write_beginnings(folder, spec, plan_with(num_trials=len(OUTCOMES)))
    EventLog(event_file(folder)).append(Started(params={}, tags={FINGERPRINT: DATA}))
    record, suggester = record_of(folder), Suggester(spec.search, spec.seed)
    for number, (outcome, length) in enumerate(zip(OUTCOMES, LENGTHS, strict=True)):
        point = some(suggester.configuration(number, list(record.trials.values())))
        trial = record.start(f"trial-{number:04d}", point, number, 0)
        place = checkpoint_folder(folder, trial.name)
        place.mkdir(parents=True)
        values = [value(number, epoch) for epoch in range(1, length + 1)]
        record.report(trial, lines(trial.name, *values))
        save_model(place, spec.trial(trial.params), length, value(number, length), "model.pt")
        if outcome is Status.FINISHED:
            save_predictions(place / "predictions.npz", DATA, {})
        if outcome is Status.INTERRUPTED:
            checkpoint.save(place / "last.pt", {"best": None})
        record.end_trial(trial, outcome, None)
        if outcome is not Status.INTERRUPTED:
            record.tidy(trial)
