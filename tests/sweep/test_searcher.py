"""The searcher's reports to the study about the ends of trials."""

import math
import os
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher

from mtcon_ray.base.status import Status
from mtcon_ray.spec.evaluate import Select
from mtcon_ray.spec.resources import ResourcesSpec
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.searcher import WAITING_VARIABLE, StudySearcher, let_trials_wait
from mtcon_ray.sweep.study import REASON, Suggester, named_trials, open_study
from tests.sweep.still_driver import StillDriver


class Sweep:
    """A searcher over four temperatures, with a record of its callbacks."""

    def __init__(
        self,
        max_concurrent: int = 2,
        select: Select = "last",
        recorded: dict[int, float] | None = None,
    ) -> None:
        spec = SearchSpec.model_validate(
            {"space": {"method.temperature": {"grid": [0.1, 0.2, 0.3, 0.4]}}, "sampler": "grid"}
        )
        self.study = open_study(None, "s")
        self.driver = StillDriver(select, recorded)
        self.searcher = StudySearcher(
            Suggester(self.study, spec, 0), [], self.driver, max_concurrent=max_concurrent
        )

    @property
    def ended(self) -> list[tuple[Status, str | None]]:
        """Outcomes and reasons of the trials that have ended, in order."""
        return [(outcome, reason) for _, outcome, reason in self.driver.ends]

    def end(self, *, error: bool = False, **result: Any) -> FrozenTrial:
        """Suggests a trial and ends it at once."""
        self.searcher.suggest("a")
        self.searcher.on_trial_complete("a", result or None, error=error)
        return named_trials(self.study)[-1]


def test_a_suggestion_says_all_that_a_worker_needs() -> None:
    assert Sweep().searcher.suggest("a") == {
        "trial": "trial-0000",
        "repeat": 0,
        "values": {"method.temperature": 0.1},
        "until": None,
    }


def test_no_more_trials_at_a_time_than_asked_for() -> None:
    sweep = Sweep(max_concurrent=2)
    assert sweep.searcher.suggest("a")
    assert sweep.searcher.suggest("b")
    assert sweep.searcher.suggest("c") is None
    sweep.searcher.on_trial_complete("a", {"objective": 0.5, "epoch": 3, "outcome": "FINISHED"})
    assert sweep.searcher.suggest("c")["trial"] == "trial-0002"


def test_a_finished_trial_is_complete_with_its_last_value() -> None:
    trial = Sweep().end(objective=0.5, epoch=3, outcome="FINISHED")
    assert (trial.state, trial.value) == (TrialState.COMPLETE, 0.5)


def test_a_trial_that_tune_stops_is_pruned_and_keeps_its_values() -> None:
    sweep = Sweep()
    sweep.searcher.suggest("a")
    # an epoch is recorded once, so the second value of epoch 2 is ignored
    for epoch, value in ((1, 0.3), (2, 0.4), (2, 0.9)):
        sweep.searcher.on_trial_result(
            "a", {"objective": value, "epoch": epoch, "outcome": "RUNNING"}
        )
    sweep.searcher.on_trial_complete("a", {"objective": 0.4, "epoch": 2, "outcome": "RUNNING"})
    (trial,) = named_trials(sweep.study)
    assert trial.state is TrialState.PRUNED
    assert trial.intermediate_values == {1: 0.3, 2: 0.4}
    assert sweep.ended == [(Status.PRUNED, None)]


def test_a_failed_trial_keeps_its_reason() -> None:
    trial = Sweep().end(outcome="FAILED", reason="Diverged: gradient norm nan")
    assert trial.state is TrialState.FAIL
    assert trial.user_attrs[REASON] == "Diverged: gradient norm nan"


@pytest.mark.parametrize("value", [math.nan, None])
def test_a_value_that_is_no_number_is_a_failure(value: float | None) -> None:
    assert Sweep().end(objective=value, epoch=3, outcome="FINISHED").state is TrialState.FAIL


def test_a_lost_process_is_a_failure_and_is_explained() -> None:
    sweep = Sweep()
    assert sweep.end(error=True).state is TrialState.FAIL
    assert sweep.ended == [(Status.FAILED, "trial-0000 was lost")]


def test_an_interrupted_trial_stays_open() -> None:
    sweep = Sweep()
    assert sweep.end(outcome="INTERRUPTED").state is TrialState.RUNNING
    assert sweep.ended == [(Status.INTERRUPTED, None)]


@pytest.mark.parametrize("ending", [{"error": True}, {"outcome": "RUNNING", "epoch": 1}])
def test_what_ends_while_the_sweep_is_stopping_is_interrupted(ending: dict[str, Any]) -> None:
    sweep = Sweep()
    sweep.searcher.suggest("a")
    sweep.driver.stopping = True
    error = ending.pop("error", False)
    sweep.searcher.on_trial_complete("a", ending or None, error=error)
    assert sweep.ended == [(Status.INTERRUPTED, None)]
    assert sweep.searcher.suggest("b") == Searcher.FINISHED


def test_without_time_left_no_trial_is_suggested_and_those_that_run_are_finished() -> None:
    sweep = Sweep()
    sweep.searcher.suggest("a")
    sweep.driver.exhausted = True
    assert sweep.searcher.suggest("b") == Searcher.FINISHED
    last = {"objective": 0.5, "epoch": 3, "outcome": "FINISHED"}
    sweep.searcher.on_trial_complete("a", last)
    assert [t.state for t in named_trials(sweep.study)] == [TrialState.COMPLETE]


def test_the_end_of_the_space_is_the_end_of_the_search() -> None:
    sweep = Sweep()
    for _ in range(4):
        sweep.end(objective=0.5, epoch=3, outcome="FINISHED")
    assert sweep.searcher.suggest("z") == Searcher.FINISHED


def test_a_report_reads_its_own_trial_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep()
    sweep.searcher.suggest("a")

    def refuse(*_: Any, **__: Any) -> list[FrozenTrial]:
        raise AssertionError("reading all trials for each report is felt after hundreds")

    with monkeypatch.context() as patched:
        patched.setattr(sweep.study, "get_trials", refuse)
        for epoch in (1, 2):
            result = {"objective": epoch / 10, "epoch": epoch, "outcome": "RUNNING"}
            sweep.searcher.on_trial_result("a", result)
    assert named_trials(sweep.study)[0].intermediate_values == {1: 0.1, 2: 0.2}


def test_an_error_that_every_trial_would_meet_ends_the_sweep_and_leaves_the_trial_open() -> None:
    sweep = Sweep()
    trial = sweep.end(outcome="INTERRUPTED", halt="cannot write last.pt", done=True)
    assert sweep.driver.halted == ["cannot write last.pt"]
    assert sweep.ended == [(Status.INTERRUPTED, None)]
    assert trial.state is TrialState.RUNNING
    assert sweep.searcher.suggest("b") == Searcher.FINISHED


def test_epochs_that_only_the_record_has_reach_the_study_before_its_end() -> None:
    """Workers train on while Tune stops their trial, and a killed worker's report is lost."""
    sweep = Sweep(recorded={1: 0.2, 2: 0.3, 3: 0.6})
    sweep.searcher.suggest("a")
    sweep.searcher.on_trial_result("a", {"objective": 0.3, "epoch": 2})
    sweep.searcher.on_trial_complete("a", {"objective": 0.3, "epoch": 2, "outcome": "RUNNING"})
    (trial,) = named_trials(sweep.study)
    assert (trial.state, trial.value) == (TrialState.PRUNED, 0.6)
    assert trial.intermediate_values == {1: 0.2, 2: 0.3, 3: 0.6}


def test_an_epoch_that_is_recorded_just_before_the_end_event_reaches_the_study() -> None:
    """The event log takes no report after its end event, and the study none after its end."""
    recorded = {1: 0.2}
    sweep = Sweep(recorded=recorded)
    ended = sweep.driver.ended

    def ends_late(trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        recorded[2] = 0.6
        ended(trial, outcome, reason)

    sweep.driver.ended = ends_late  # type: ignore[method-assign]
    trial = sweep.end(objective=0.2, epoch=1, outcome="RUNNING")
    assert (trial.state, trial.value) == (TrialState.PRUNED, 0.6)
    assert trial.intermediate_values == {1: 0.2, 2: 0.6}


def test_a_trial_has_the_value_of_the_network_that_counts() -> None:
    sweep = Sweep(select="best")
    sweep.searcher.suggest("a")
    for epoch, value in ((1, 0.3), (2, 0.7)):
        sweep.searcher.on_trial_result("a", {"objective": value, "epoch": epoch})
    last = {"objective": 0.5, "epoch": 3, "outcome": "FINISHED"}
    sweep.searcher.on_trial_complete("a", last)
    assert named_trials(sweep.study)[0].value == 0.7


@pytest.mark.parametrize(
    ("workers", "concurrency", "expected"),
    [(1, 3, "3"), (2, 100, "8"), (1, None, "1"), ((1, 4), 3, "1")],
    ids=["all that fit", "many", "unknown", "elastic"],
)
def test_so_many_trials_may_wait_for_their_processes(
    workers: int | tuple[int, int],
    concurrency: int | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resources = ResourcesSpec(workers=workers)
    monkeypatch.setenv(WAITING_VARIABLE, "5")
    let_trials_wait(resources, concurrency)
    assert os.environ[WAITING_VARIABLE] == "5", "a user's setting holds"
    monkeypatch.delenv(WAITING_VARIABLE)
    let_trials_wait(resources, concurrency)
    assert os.environ[WAITING_VARIABLE] == expected
