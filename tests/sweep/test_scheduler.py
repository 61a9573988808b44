"""ASHA with trials of different lengths, and across restarts of the driver."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.schedulers import (
    ASHA,
    SCHEDULERS,
    Halving,
    History,
    NoScheduler,
    Scheduler,
    SchedulerSpec,
    StoppingRule,
)
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.scheduler import BUDGET, OBJECTIVE, ResumableASHA, tune_scheduler
from mtcon_ray.sweep.study import ACTING, preview

CONTROLLER: Any = None


def trial(name: str) -> Any:
    return SimpleNamespace(trial_id=f"tune-{name}", config={"trial": name})


def report(scheduler: TrialScheduler, of: Any, epoch: int, epochs: int, value: float) -> str:
    result = {BUDGET: round(100 * epoch / epochs, 6), OBJECTIVE: value}
    return scheduler.on_trial_result(CONTROLLER, of, result)


def asha(**fields: Any) -> ASHA.Spec:
    return ASHA.Spec.model_validate({"grace": 0.25, "reduction": 2, **fields})


def test_rungs_are_shares_of_a_trials_own_epochs() -> None:
    scheduler = ResumableASHA(asha(), [], {})
    short, long = trial("short"), trial("long")
    for one in (short, long):
        scheduler.on_trial_add(CONTROLLER, one)
    assert report(scheduler, short, 2, 8, 0.9) == TrialScheduler.CONTINUE
    # 12 of 80 epochs are before the first rung, so a low value does not matter.
    assert report(scheduler, long, 12, 80, 0.1) == TrialScheduler.CONTINUE
    assert report(scheduler, long, 20, 80, 0.1) == TrialScheduler.STOP


def test_a_rung_is_judged_once() -> None:
    scheduler = ResumableASHA(asha(), [], {})
    good, bad = trial("good"), trial("bad")
    for one in (good, bad):
        scheduler.on_trial_add(CONTROLLER, one)
    assert report(scheduler, bad, 2, 8, 0.2) == TrialScheduler.CONTINUE
    assert report(scheduler, good, 2, 8, 0.9) == TrialScheduler.CONTINUE
    assert report(scheduler, bad, 3, 8, 0.1) == TrialScheduler.CONTINUE
    assert report(scheduler, good, 4, 8, 0.9) == TrialScheduler.CONTINUE
    assert report(scheduler, bad, 4, 8, 0.3) == TrialScheduler.STOP


def test_earlier_drivers_results_count() -> None:
    past = [[(25.0, 0.9), (50.0, 0.95)], [(25.0, 0.8)]]
    fresh, resumed = ResumableASHA(asha(), [], {}), ResumableASHA(asha(), past, {})
    for scheduler, decision in (
        (fresh, TrialScheduler.CONTINUE),
        (resumed, TrialScheduler.STOP),
    ):
        new = trial("new")
        scheduler.on_trial_add(CONTROLLER, new)
        assert report(scheduler, new, 2, 8, 0.5) == decision


def test_a_continued_trial_is_not_judged_again_at_a_rung_it_passed() -> None:
    past = [[(25.0, 0.9)], [(25.0, 0.9)]]
    scheduler = ResumableASHA(asha(), past, {"old": [(25.0, 0.5)]})
    old = trial("old")
    scheduler.on_trial_add(CONTROLLER, old)
    assert report(scheduler, old, 2, 8, 0.5) == TrialScheduler.CONTINUE
    assert report(scheduler, old, 3, 8, 0.5) == TrialScheduler.CONTINUE


def test_rungs_of_the_spec_end_below_the_whole_budget() -> None:
    assert asha().rungs == (0.25, 0.5)
    assert asha(grace=0.1, reduction=3).rungs == (0.1, 0.30000000000000004, 0.9000000000000001)
    assert NoScheduler.Spec().rungs == ()


class Median(Scheduler):
    """A scheduler that nobody gave an acting half."""

    class Spec(SchedulerSpec):
        name: Literal["median"] = "median"


class Falling(StoppingRule):
    """Stops a trial that fell, once any other trial has a higher value."""

    class Spec(SchedulerSpec):
        name: Literal["falling"] = "falling"

    def stops(self, trial: History, others: Sequence[History]) -> bool:
        values = [value for _, value in trial]
        others_best = max((value for other in others for _, value in other), default=0.0)
        return values[-1] < values[0] and others_best > values[-1]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers both, as plugins do."""
    named: dict[str, type[Scheduler]] = {"median": Median, "falling": Falling}
    for name, kind in named.items():
        monkeypatch.setitem(SCHEDULERS._specs, name, kind.Spec)
        monkeypatch.setitem(SCHEDULERS._classes, name, kind)


@pytest.mark.usefixtures("kinds")
def test_a_plan_refuses_a_scheduler_without_an_acting_half() -> None:
    search = SearchSpec.model_validate({"space": {"train.lr": {"uniform": [0.1, 1]}}})
    expected = r"search\.scheduler must be one that .* \(asha, halving, none, or .*, got 'median'"
    with pytest.raises(SpecError, match=expected):
        preview(search.model_copy(update={"scheduler": Median.Spec()}), 0)
    preview(search.model_copy(update={"scheduler": Falling.Spec()}), 0)


@pytest.mark.usefixtures("kinds")
def test_a_stopping_rule_sees_its_trial_and_all_others() -> None:
    """Also what an earlier driver saw of both; an epoch without a probe is not asked about."""
    fresh = tune_scheduler(Falling.Spec(), [], {})
    resumed = tune_scheduler(Falling.Spec(), [[(50.0, 0.8)]], {"old": [(25.0, 0.7)]})
    for scheduler, decision in ((fresh, TrialScheduler.CONTINUE), (resumed, TrialScheduler.STOP)):
        old = trial("old")
        scheduler.on_trial_add(CONTROLLER, old)
        assert scheduler.on_trial_result(CONTROLLER, old, {BUDGET: 40}) == TrialScheduler.CONTINUE
        assert report(scheduler, old, 2, 4, 0.6) == decision
    other = trial("other")
    fresh.on_trial_add(CONTROLLER, other)
    assert report(fresh, other, 1, 4, 0.9) == TrialScheduler.CONTINUE
    assert report(fresh, old, 1, 4, 0.5) == TrialScheduler.CONTINUE, "it is trained once more"
    assert report(fresh, old, 3, 4, 0.5) == TrialScheduler.STOP


@pytest.mark.usefixtures("kinds")
def test_an_epoch_that_a_resume_repeats_is_not_judged_again() -> None:
    rule = tune_scheduler(Falling.Spec(), [[(50.0, 0.9)]], {"old": [(50.0, 0.6)]})
    old = trial("old")
    rule.on_trial_add(CONTROLLER, old)
    assert report(rule, old, 2, 4, 0.5) == TrialScheduler.CONTINUE


def test_a_rung_at_a_share_that_binary_fractions_miss_is_met() -> None:
    """A third of three epochs is one, also as 33.333333 percent."""
    scheduler = ResumableASHA(asha(grace=1 / 3), [], {})
    good, bad = trial("good"), trial("bad")
    for one in (good, bad):
        scheduler.on_trial_add(CONTROLLER, one)
    report(scheduler, good, 1, 3, 0.9)
    assert report(scheduler, bad, 1, 3, 0.1) == TrialScheduler.STOP


def test_sweeps_act_on_every_registered_scheduler_and_no_other() -> None:
    assert list(ACTING) == list(SCHEDULERS)


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_a_registered_scheduler_with_rungs_can_stop_trials(name: str) -> None:
    """By Tune's scheduler, or by waiting at rungs; one without rungs is Tune's plain order."""
    spec = SCHEDULERS[name].Spec()  # type: ignore[call-arg]
    acts = type(tune_scheduler(spec, [], {})) is not FIFOScheduler
    assert (acts or isinstance(spec, Halving.Spec)) is bool(spec.rungs)
