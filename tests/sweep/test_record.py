"""The events that a driver writes of a sweep and its trials, and the files that it removes."""

from pathlib import Path

import pytest

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import checkpoint_folder
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import by_trial, read_events
from mtcon_ray.records.events import Artifact, Event, Reported
from mtcon_ray.records.results import trial_status
from mtcon_ray.sweep.record import SweepRecord, Trial
from mtcon_ray.training import checkpoint
from tests.sweep.simulated import Simulation, line, lines, some_spec
from tests.sweep.written_sweep import EPOCHS, record_of, save_model, value


def scores(folder: Path) -> list[tuple[int, float]]:
    own = by_trial(read_events(record_of(folder).log.path))[None]
    return [(e.epoch, e.metrics[MEAN_ACCURACY]) for e in own if isinstance(e, Reported)]


def test_each_end_of_the_sweep_writes_the_winner_with_a_step_of_its_own(folder: Path) -> None:
    """The number of ended trials may stay: a trial had failed, and finishes as the best one."""
    record = record_of(folder)
    record.end_trial(record.trials["trial-0002"], Status.FAILED, "its process was lost")
    record.end("FINISHED", None)
    record = record_of(folder)
    record.reopen(trial := record.trials["trial-0002"])
    epochs = range(trial.last_epoch + 1, EPOCHS + 1)
    record.report(trial, [line(trial.name, epoch, value(2, epoch)) for epoch in epochs])
    record.end_trial(trial, Status.FINISHED, None)
    record_of(folder).end("FINISHED", None)
    assert scores(folder) == [(1, value(0, EPOCHS)), (2, value(2, EPOCHS))]


def begun(
    folder: Path, select: str = "last", checkpoints: str = "kept", keep: int | None = None
) -> tuple[SweepRecord, Trial]:
    """Returns the record of a sweep with one trial, which has a network and resume states."""
    changes = {"evaluate.select": select, "tracking.checkpoints": checkpoints, "storage.keep": keep}
    driver = Simulation(folder, some_spec(4, changes)).driver()
    driver.next()
    trial = driver.record.trials["trial-0000"]
    place = checkpoint_folder(driver.record.folder, trial.name)
    place.mkdir(parents=True)
    for name in ("model.pt", "last.pt", "last.previous.pt"):
        checkpoint.save(place / name, {})
    return driver.record, trial


def events(record: SweepRecord) -> list[Event]:
    return by_trial(read_events(record.log.path))["trial-0000"]


@pytest.mark.parametrize(("checkpoints", "num_sent"), [("none", 0), ("kept", 1), ("all", 3)])
def test_the_spec_says_what_is_sent(tmp_path: Path, checkpoints: str, num_sent: int) -> None:
    outcomes = (Status.FINISHED, Status.PRUNED, Status.FAILED)
    for outcome in outcomes:
        record, trial = begun(tmp_path / outcome, checkpoints=checkpoints)
        record.end_trial(trial, outcome, None)
        record.tidy(trial)
        record.tidy(trial)
        place = checkpoint_folder(record.folder, trial.name)
        assert [path.name for path in place.iterdir()] == ["model.pt"]
        assert trial_status(events(record)) == (outcome, None)
        found = [Path(e.path).name for e in events(record) if isinstance(e, Artifact)]
        assert found == (["model.pt"] if outcome in outcomes[:num_sent] else []), "once"


def test_a_failed_trial_keeps_the_state_of_its_best_network(tmp_path: Path) -> None:
    """Else a retry on a GPU would have other values than those in the log."""
    record, trial = begun(tmp_path, select="best")
    record.end_trial(trial, Status.FAILED, None)
    record.tidy(trial)
    record.reopen(trial)
    assert (checkpoint_folder(record.folder, trial.name) / "last.pt").exists()


def test_with_storage_keep_files_are_sent_when_the_sweep_has_ended(tmp_path: Path) -> None:
    """They follow the trial's end, which still counts: nothing is recorded after it."""
    record, trial = begun(tmp_path, keep=1)
    record.end_trial(trial, Status.FINISHED, None)
    record.tidy(trial)
    assert [e.kind for e in events(record)] == ["start", "end"]
    for _ in range(2):
        record.tidy(trial, at_end=True)
    assert [e.kind for e in events(record)] == ["start", "end", "artifact"]
    assert record.report(trial, [line(trial.name, 3, 0.5)]) == []
    assert trial_status(events(record)) == (Status.FINISHED, None)


def test_the_best_epoch_stands_for_a_trial_where_the_spec_says_so(tmp_path: Path) -> None:
    record, trial = begun(tmp_path, select="best")
    record.report(trial, lines(trial.name, 0.2, 0.7, 0.3, 0.4))
    record.end_trial(trial, Status.FINISHED, None)
    assert trial.value == 0.7
    tags = vars(events(record)[-1])["tags"]
    assert (tags["mtcon.model_epoch"], tags["mtcon.value"]) == ("2", "0.7000")


def test_times_of_a_trial_do_not_decrease_if_the_clock_of_its_node_is_ahead(tmp_path: Path) -> None:
    record, trial = begun(tmp_path)
    ahead = events(record)[0].time_ms + 3_600_000
    record.report(trial, [Reported(trial=trial.name, epoch=1, metrics={}, time_ms=ahead).to_line()])
    record.end_trial(trial, Status.PRUNED, None)
    assert [e.time_ms for e in events(record)][1:] == [ahead, ahead]


def test_a_plateau_is_the_end_of_a_trial(tmp_path: Path) -> None:
    record = Simulation(tmp_path, some_spec(9, {"train.patience": 2})).driver().record
    trial = record.start("trial-0000", {}, 0, 0)
    record.report(trial, lines(trial.name, 0.1, 0.5, 0.4))
    assert not record.is_done(trial)
    record.report(trial, [line(trial.name, 4, 0.5)])
    assert record.is_done(trial)
    patient = record.start("trial-0001", {"train.patience": 3}, 0, 1)
    record.report(patient, lines(patient.name, 0.1, 0.5, 0.4, 0.5))
    assert not record.is_done(patient), "its own patience counts"


def test_a_new_trial_keeps_a_checkpoint_of_its_own_configuration_alone(tmp_path: Path) -> None:
    """The log was cut before the start of the trial, which left its checkpoint."""
    spec = some_spec()
    record = Simulation(tmp_path, spec).driver().record
    for number, left in ((0, True), (1, False)):
        name, params = f"trial-{number:04d}", {"method.temperature": 0.1 * (1 + number)}
        place = checkpoint_folder(record.folder, name)
        place.mkdir(parents=True)
        save_model(place, spec.trial({"method.temperature": 0.1}), 1, 0.5, "last.pt")
        record.start(name, params, number, 0)
        assert (place / "last.pt").exists() == left
