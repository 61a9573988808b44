"""The events of a sweep's own MLflow run: which step the winner's scores get at each end."""

from pathlib import Path

import pytest
from optuna.trial import TrialState

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import journal_file, sweep_folder
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Event, Reopened, Reported
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import retry_failed
from mtcon_ray.sweep.study import named_trials, open_study
from tests.sweep.mirrored_sweep import train_on
from tests.sweep.written_sweep import EPOCHS, value, write_sweep


@pytest.fixture
def record(tmp_path: Path) -> SweepRecord:
    """Returns the record of a sweep whose last trial was interrupted."""
    folder = sweep_folder(tmp_path, "shoes-1")
    write_sweep(folder)
    return SweepRecord(folder, load_recorded(folder / "spec.yaml"))


def scores(record: SweepRecord) -> list[tuple[int, float]]:
    reports = [e for e in record.parent.events() if isinstance(e, Reported)]
    return [(e.epoch, e.metrics[MEAN_ACCURACY]) for e in reports]


def test_an_interrupted_sweep_leaves_the_last_step_to_its_resume(record: SweepRecord) -> None:
    record.end("KILLED", None)
    record.parent.append(Reopened())
    train_on(record.folder, EPOCHS)
    record.end("FINISHED", None)
    assert scores(record) == [(2, value(0, EPOCHS)), (3, value(2, EPOCHS))]


def test_a_winner_that_was_trained_again_gets_a_step_of_its_own(record: SweepRecord) -> None:
    """The number of ended trials stays: the trial had failed, and finishes as the best one."""
    study = open_study(journal_file(record.folder), record.folder.name)
    study.tell(named_trials(study)[2].number, state=TrialState.FAIL)
    record.trial_ended(named_trials(study)[2], Status.FAILED, "its process was lost")
    record.end("FINISHED", None)
    record.parent.append(Reopened())
    record.end("FINISHED", None)
    assert scores(record) == [(3, value(0, EPOCHS))], "scores that stay are not written again"
    record.parent.append(Reopened())
    assert retry_failed(study, record) == ["trial-0002"]
    train_on(record.folder, EPOCHS)
    record.end("FINISHED", None)
    assert scores(record) == [(3, value(0, EPOCHS)), (4, value(2, EPOCHS))]


def test_a_trial_keeps_its_resume_state_until_its_end_is_recorded(
    record: SweepRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill in between would else leave a trial that is trained from its start again."""
    trial = named_trials(open_study(journal_file(record.folder), record.folder.name))[2]
    state = record.checkpoints(trial) / "last.pt"
    state.parent.mkdir(parents=True, exist_ok=True)
    state.touch()
    append = EventLog.append

    def killed(log: EventLog, event: Event) -> bool:
        if isinstance(event, Ended):
            raise KeyboardInterrupt
        return append(log, event)

    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "append", killed)
        with pytest.raises(KeyboardInterrupt):
            record.trial_ended(trial, Status.PRUNED, None)
    assert state.exists()
    record.trial_ended(trial, Status.PRUNED, None)
    assert not state.exists()
