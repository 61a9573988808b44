"""Reconciliation of the study and the event logs after a driver was killed."""

import os
import re
from pathlib import Path

import pytest
from optuna.trial import FrozenTrial, TrialState

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.status import Status
from mtcon_ray.records.events import Artifact, Ended, Reported
from mtcon_ray.records.results import trial_status
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import (
    close_waiting,
    continued_trials,
    discard_leftovers,
    history,
    retry_failed,
    settle,
)
from mtcon_ray.sweep.searcher import tell
from mtcon_ray.sweep.study import REASON, TRIAL, Suggester, named_trials, open_study
from mtcon_ray.training import checkpoint

EPOCHS = 4
SEARCH = SearchSpec.model_validate({"space": {"train.lr": {"uniform": [0.1, 1]}}})


class Killed:
    """A sweep whose driver was killed with one open trial."""

    def __init__(
        self,
        folder: Path,
        select: str = "last",
        checkpoints: str = "kept",
        keep: int | None = None,
    ) -> None:
        sections = {
            "evaluate": {"select": select},
            "tracking": {"checkpoints": checkpoints},
            "storage": {"keep": keep},
        }
        spec = parse_spec({"name": "x", "train": {"epochs": EPOCHS}, **sections})
        self.study = open_study(folder / "study.journal", "s")
        self.record = SweepRecord(folder, spec)
        trial = Suggester(self.study, SEARCH, 0).next()
        assert trial is not None
        self.record.trial_started(trial)
        self.spool = self.record.spool(trial)

    @property
    def trial(self) -> FrozenTrial:
        return named_trials(self.study)[0]


@pytest.fixture
def killed(tmp_path: Path) -> Killed:
    return Killed(tmp_path)


def test_a_trial_recorded_to_its_end_is_finished(killed: Killed) -> None:
    for epoch in range(1, EPOCHS + 1):
        killed.spool.append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: epoch / 10}))
    settle(killed.study, killed.record)
    assert (killed.trial.state, killed.trial.value) == (TrialState.COMPLETE, 0.4)
    assert killed.trial.intermediate_values == {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}
    assert killed.spool.events()[-1].to_json()["status"] == "FINISHED"
    assert continued_trials(killed.study) == []


def test_a_trial_cut_short_goes_on_with_its_values(killed: Killed) -> None:
    killed.spool.append(Reported(epoch=1, metrics={MEAN_ACCURACY: 0.1}))
    settle(killed.study, killed.record)
    (trial,) = continued_trials(killed.study)
    assert history(trial, EPOCHS) == [(25.0, 0.1)]
    assert killed.spool.events()[-1].kind == "report"


def test_a_suggestion_without_a_name_was_never_trained(killed: Killed) -> None:
    killed.study.ask()
    settle(killed.study, killed.record)
    assert killed.study.trials[1].state is TrialState.FAIL
    assert len(continued_trials(killed.study)) == 1


def test_an_end_that_was_told_but_not_recorded_is_recorded(killed: Killed) -> None:
    killed.study.tell(killed.trial.number, 0.5)
    for _ in range(2):
        settle(killed.study, killed.record)
    ends = [e for e in killed.spool.events() if isinstance(e, Ended)]
    assert [e.status for e in ends] == ["FINISHED"]


def test_what_a_stopped_trials_workers_still_wrote_is_removed(killed: Killed) -> None:
    """An open trial keeps its resume state."""
    folder = killed.record.checkpoints(killed.trial)
    folder.mkdir(parents=True)
    for name in ("model.pt", "last.pt", "last.previous.pt"):
        checkpoint.save(folder / name, {})
    discard_leftovers(killed.study, killed.record)
    assert len(list(folder.iterdir())) == 3
    killed.study.tell(killed.trial.number, 0.5)
    discard_leftovers(killed.study, killed.record)
    assert [path.name for path in folder.iterdir()] == ["model.pt"]


def test_a_trial_whose_record_could_not_begin_is_left_for_the_resume(tmp_path: Path) -> None:
    """On a full disk a trial may have a name but no event log; later its log has start and end."""
    killed = Killed(tmp_path)
    killed.spool.path.unlink()
    close_waiting(killed.study, killed.record)
    assert not killed.spool.path.exists()
    killed.study.tell(killed.trial.number, 0.5)
    settle(killed.study, killed.record)
    assert [e.kind for e in killed.record.spool(killed.trial).events()] == ["start", "end"]


def test_the_best_epoch_stands_for_a_trial_where_the_spec_says_so(tmp_path: Path) -> None:
    killed = Killed(tmp_path, select="best")
    for epoch, value in enumerate((0.2, 0.7, 0.3, 0.4), 1):
        killed.spool.append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: value}))
    settle(killed.study, killed.record)
    assert killed.trial.value == 0.7
    tags = killed.spool.events()[-1].to_json()["tags"]
    assert (tags["mtcon.model_epoch"], tags["mtcon.value"]) == ("2", "0.7000")


@pytest.mark.parametrize("outcome", [Status.FINISHED, Status.PRUNED, Status.FAILED])
def test_the_resume_state_goes_with_the_end(killed: Killed, outcome: Status) -> None:
    """The resume state of a trial that failed before its first probe is removed too."""
    folder = killed.record.checkpoints(killed.trial)
    folder.mkdir(parents=True)
    kept = [] if outcome is Status.FAILED else ["model.pt"]
    for name in ("last.pt", "last.previous.pt", *kept):
        checkpoint.save(folder / name, {})
    killed.record.trial_ended(killed.trial, outcome, None)
    assert [path.name for path in folder.iterdir()] == kept


@pytest.mark.parametrize(
    ("checkpoints", "sent"),
    [
        ("none", []),
        ("kept", [Status.FINISHED]),
        ("all", [Status.FINISHED, Status.PRUNED, Status.FAILED]),
    ],
)
def test_files_of_trials_become_artifacts_as_the_spec_says(
    tmp_path: Path, checkpoints: str, sent: list[Status]
) -> None:
    for outcome in (Status.FINISHED, Status.PRUNED, Status.FAILED, Status.INTERRUPTED):
        (tmp_path / outcome).mkdir()
        killed = Killed(tmp_path / outcome, checkpoints=checkpoints)
        folder = killed.record.checkpoints(killed.trial)
        folder.mkdir(parents=True)
        checkpoint.save(folder / "model.pt", {})
        killed.record.trial_ended(killed.trial, outcome, None)
        artifacts = [e.path for e in killed.spool.events() if isinstance(e, Artifact)]
        assert artifacts == ([str(folder / "model.pt")] if outcome in sent else [])


@pytest.mark.parametrize("checkpoints", ["none", "kept"])
def test_with_storage_keep_files_are_sent_once_when_the_sweep_has_ended(
    tmp_path: Path, checkpoints: str
) -> None:
    """They follow the trial's end, which still counts: nothing is recorded after it."""
    killed = Killed(tmp_path, keep=1, checkpoints=checkpoints)
    folder = killed.record.checkpoints(killed.trial)
    folder.mkdir(parents=True)
    checkpoint.save(folder / "model.pt", {})
    killed.record.trial_ended(killed.trial, Status.FINISHED, None)
    assert [e.kind for e in killed.spool.events()] == ["start", "end"]
    sent = ["artifact"] if checkpoints == "kept" else []
    killed.study.tell(killed.trial.number, 0.5)
    for _ in range(2):
        killed.record.send_kept([killed.trial])
        settle(killed.study, killed.record)
        assert [e.kind for e in killed.spool.events()] == ["start", "end", *sent]
    assert not killed.spool.append(Reported(epoch=3, metrics={}))
    assert trial_status(killed.spool.events()) == (Status.FINISHED, None)


@pytest.mark.parametrize(
    "outcome", [Status.FINISHED, Status.PRUNED, Status.FAILED, Status.INTERRUPTED]
)
def test_the_event_log_has_the_status_that_a_trial_ended_with(
    killed: Killed, outcome: Status
) -> None:
    killed.record.trial_ended(killed.trial, outcome, None)
    assert trial_status(killed.spool.events()) == (outcome, None)


def test_an_interrupted_trial_is_reopened(killed: Killed) -> None:
    killed.record.trial_ended(killed.trial, Status.INTERRUPTED, None)
    killed.record.trial_started(killed.trial)
    kinds = [e.kind for e in killed.spool.events()]
    assert kinds == ["start", "end", "reopen"]


@pytest.mark.parametrize("lost", [1, 20])
def test_a_torn_last_line_costs_nothing_that_the_records_have(tmp_path: Path, lost: int) -> None:
    """The line of a finished trial's end is torn. The journal is opened and reconciled twice."""
    killed = Killed(tmp_path)
    for epoch in range(1, EPOCHS + 1):
        killed.spool.append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: epoch / 10}))
    killed.study.tell(killed.trial.number, 0.4)
    killed.record.trial_ended(killed.trial, Status.FINISHED, None)
    os.truncate(tmp_path / "study.journal", (tmp_path / "study.journal").stat().st_size - lost)
    for _ in range(2):
        killed.study = open_study(tmp_path / "study.journal", "s")
        settle(killed.study, killed.record)
        assert (killed.trial.state, killed.trial.value) == (TrialState.COMPLETE, 0.4)


def test_a_trial_whose_name_is_torn_off_the_journal_keeps_it(tmp_path: Path) -> None:
    """Without this the next suggestion would take the same name and this trial's event log."""
    killed = Killed(tmp_path)
    killed.spool.append(Reported(epoch=1, metrics={MEAN_ACCURACY: 0.1}))
    before = killed.trial
    os.truncate(tmp_path / "study.journal", (tmp_path / "study.journal").stat().st_size - 20)
    killed.study = open_study(tmp_path / "study.journal", "s")
    assert named_trials(killed.study) == []
    settle(killed.study, killed.record)
    (trial,) = continued_trials(killed.study)
    assert (trial.user_attrs, trial.params) == (before.user_attrs, before.params)
    assert trial.intermediate_values == {1: 0.1}


def test_an_unnamed_trial_takes_no_log_of_another_configuration(tmp_path: Path) -> None:
    killed = Killed(tmp_path)
    os.truncate(tmp_path / "study.journal", (tmp_path / "study.journal").stat().st_size - 20)
    killed.study = open_study(tmp_path / "study.journal", "s")
    path = killed.spool.path
    path.write_text(re.sub(r'("train.lr": )[0-9.]+', r"\g<1>0.95", path.read_text()))
    settle(killed.study, killed.record)
    assert named_trials(killed.study) == []


@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Status.PRUNED, TrialState.PRUNED), (Status.FAILED, TrialState.FAIL)],
)
def test_an_end_that_is_recorded_and_torn_off_the_journal_is_told_again(
    killed: Killed, outcome: Status, state: TrialState
) -> None:
    """The trial's resume state is deleted, so if it continued, it would train from the start."""
    killed.spool.append(Reported(epoch=1, metrics={MEAN_ACCURACY: 0.1}))
    killed.record.trial_ended(killed.trial, outcome, "why")
    settle(killed.study, killed.record)
    assert killed.trial.state is state
    assert continued_trials(killed.study) == []


def failed_after(killed: Killed, epoch: int) -> None:
    """Ends the open trial as failed after some epochs; its workers leave a resume state."""
    for each in range(1, epoch + 1):
        killed.spool.append(Reported(epoch=each, metrics={MEAN_ACCURACY: each / 10}))
    tell(killed.study, killed.trial, Status.FAILED, epoch / 10, "lost")
    killed.record.trial_ended(killed.trial, Status.FAILED, "lost")
    killed.record.checkpoints(killed.trial).mkdir(parents=True)
    checkpoint.save(killed.record.checkpoints(killed.trial) / "last.pt", {})


def test_a_failed_trial_is_opened_again_under_its_name_and_stays_open(tmp_path: Path) -> None:
    """A second driver reads the journal after the first was killed at once."""
    killed = Killed(tmp_path)
    failed_after(killed, 2)
    before = killed.trial
    assert retry_failed(killed.study, killed.record) == ["trial-0000"]
    for _ in range(2):
        (trial,) = named_trials(killed.study)
        assert (trial.params, trial.state) == (before.params, TrialState.RUNNING)
        assert history(trial, EPOCHS) == [(25.0, 0.1), (50.0, 0.2)]
        assert REASON not in trial.user_attrs
        assert continued_trials(killed.study) == [trial]
        assert retry_failed(killed.study, killed.record) == [], "it has not failed again"
        killed.study = open_study(tmp_path / "study.journal", "s")
        settle(killed.study, killed.record)
    assert not (killed.record.checkpoints(trial) / "last.pt").exists()
    assert [t.state for t in killed.study.trials] == [TrialState.FAIL, TrialState.RUNNING]


def test_a_retried_trial_has_one_record_and_the_next_suggestion_a_name_of_its_own(
    killed: Killed,
) -> None:
    failed_after(killed, 2)
    retry_failed(killed.study, killed.record)
    # It is trained from its start: the first epochs are in its log already.
    added = [
        killed.spool.append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: epoch / 10}))
        for epoch in range(1, EPOCHS + 1)
    ]
    assert added == [False, False, True, True]
    settle(killed.study, killed.record)
    assert (killed.trial.state, killed.trial.value) == (TrialState.COMPLETE, 0.4)
    kinds = [e.kind for e in killed.spool.events()]
    assert kinds == ["start", *["report"] * 2, "end", "reopen", *["report"] * 2, "end"]
    assert trial_status(killed.spool.events()) == (Status.FINISHED, None)
    following = Suggester(killed.study, SEARCH, 0).next()
    assert following is not None
    assert following.user_attrs[TRIAL] == "trial-0001"


@pytest.mark.parametrize("outcome", [Status.FINISHED, Status.PRUNED])
def test_only_failed_trials_are_retried(killed: Killed, outcome: Status) -> None:
    """Without a finite value the study takes a finished trial for failed."""
    tell(killed.study, killed.trial, outcome, float("nan"), None)
    killed.record.trial_ended(killed.trial, outcome, None)
    assert killed.trial.state is TrialState.FAIL
    assert retry_failed(killed.study, killed.record) == []
    assert continued_trials(killed.study) == []
