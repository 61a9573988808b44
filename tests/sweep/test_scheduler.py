"""ASHA with trials of different lengths, and across restarts of the driver."""

from types import SimpleNamespace
from typing import Any, Literal

import pytest
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from mtcon_ray.errors import SpecError
from mtcon_ray.search.schedulers import ASHA, SCHEDULERS, Halving, NoScheduler, SchedulerSpec
from mtcon_ray.search.spec import SearchSpec
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


class MedianSpec(SchedulerSpec):
    """A scheduler that nobody gave an acting half."""

    name: Literal["median"] = "median"


def test_a_plan_refuses_a_scheduler_without_an_acting_half() -> None:
    search = SearchSpec.model_validate({"space": {"train.lr": {"uniform": [0.1, 1]}}})
    search = search.model_copy(update={"scheduler": MedianSpec()})
    expected = r"search\.scheduler must be one that .* \(asha, halving, none\), got 'median'"
    with pytest.raises(SpecError, match=expected):
        preview(search, 0)


def test_sweeps_act_on_every_registered_scheduler_and_no_other() -> None:
    assert list(ACTING) == list(SCHEDULERS)


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_a_registered_scheduler_with_rungs_can_stop_trials(name: str) -> None:
    """By Tune's scheduler, or by waiting at rungs; one without rungs is Tune's plain order."""
    spec = SCHEDULERS[name].Spec()  # type: ignore[call-arg]
    acts = type(tune_scheduler(spec, [], {})) is not FIFOScheduler
    assert (acts or isinstance(spec, Halving.Spec)) is bool(spec.rungs)
