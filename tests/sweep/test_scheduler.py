"""ASHA with trials of different lengths, and across restarts of the driver."""

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler

from mtcon_ray.search.schedulers import ASHA, NoScheduler
from mtcon_ray.sweep.scheduler import BUDGET, OBJECTIVE, make_scheduler

CONTROLLER: Any = None


def trial(name: str) -> Any:
    return SimpleNamespace(trial_id=f"tune-{name}", config={"trial": name})


def report(scheduler: TrialScheduler, of: Any, epoch: int, epochs: int, value: float) -> str:
    result = {BUDGET: round(100 * epoch / epochs, 6), OBJECTIVE: value}
    return scheduler.on_trial_result(CONTROLLER, of, result)


def asha(**fields: Any) -> ASHA.Spec:
    return ASHA.Spec.model_validate({"grace": 0.25, "reduction": 2, **fields})


def test_rungs_are_shares_of_a_trials_own_epochs() -> None:
    scheduler = make_scheduler(asha(), [], {})
    short, long = trial("short"), trial("long")
    for one in (short, long):
        scheduler.on_trial_add(CONTROLLER, one)
    assert report(scheduler, short, 2, 8, 0.9) == TrialScheduler.CONTINUE
    # 12 of 80 epochs are before the first rung, so a low value does not matter.
    assert report(scheduler, long, 12, 80, 0.1) == TrialScheduler.CONTINUE
    assert report(scheduler, long, 20, 80, 0.1) == TrialScheduler.STOP


def test_a_rung_is_judged_once() -> None:
    scheduler = make_scheduler(asha(), [], {})
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
    fresh, resumed = make_scheduler(asha(), [], {}), make_scheduler(asha(), past, {})
    for scheduler, decision in (
        (fresh, TrialScheduler.CONTINUE),
        (resumed, TrialScheduler.STOP),
    ):
        new = trial("new")
        scheduler.on_trial_add(CONTROLLER, new)
        assert report(scheduler, new, 2, 8, 0.5) == decision


def test_a_continued_trial_is_not_judged_again_at_a_rung_it_passed() -> None:
    past = [[(25.0, 0.9)], [(25.0, 0.9)]]
    scheduler = make_scheduler(asha(), past, {"old": [(25.0, 0.5)]})
    old = trial("old")
    scheduler.on_trial_add(CONTROLLER, old)
    assert report(scheduler, old, 2, 8, 0.5) == TrialScheduler.CONTINUE
    assert report(scheduler, old, 3, 8, 0.5) == TrialScheduler.CONTINUE


def test_none_stops_nobody() -> None:
    assert isinstance(make_scheduler(NoScheduler.Spec(), [], {}), FIFOScheduler)


class Controller:
    """The interface that Tune's controller gives a scheduler, with lists of trials."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.every: list[Any] = []
        self.live: set[Any] = set()

    def get_trials(self) -> list[Any]:
        return self.every

    def get_live_trials(self) -> set[Any]:
        return self.live

    def add(self, trial: Any) -> None:
        """Adds a trial; a trial that failed moves behind the others, as in Tune."""
        if trial in self.every:
            self.every.remove(trial)
            self.scheduler.on_trial_error(self, trial)
        trial.status = Trial.PENDING
        self.every.append(trial)
        self.live.add(trial)
        self.scheduler.on_trial_add(self, trial)

    def end(self, trial: Any) -> None:
        """Stops a trial with the call that Tune makes for its state."""
        if trial.status in (Trial.PENDING, Trial.PAUSED):
            self.scheduler.on_trial_remove(self, trial)
        else:
            self.scheduler.on_trial_complete(self, trial, {})
        trial.status = Trial.TERMINATED
        self.live.discard(trial)


class Waiting:
    """A trial with the attributes that Tune's sets and schedulers use."""

    def __init__(self, number: int) -> None:
        self.trial_id, self.config = f"tune-{number}", {"trial": f"trial-{number:04d}"}
        self.status = Trial.PENDING


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("spec", [NoScheduler.Spec(), asha()], ids=["none", "asha"])
def test_the_trial_to_run_is_the_one_that_tunes_own_order_gives(spec: Any, seed: int) -> None:
    scheduler = make_scheduler(spec, [[(25.0, 0.9)]], {})
    controller: Any = Controller(scheduler)
    random, chosen = Random(seed), set()
    for number in range(60):
        controller.add(Waiting(number))
        one = random.choice(sorted(controller.live, key=lambda t: t.trial_id))
        match random.choice(["run", "pause", "end", "again"]):
            case "run":
                one.status = Trial.RUNNING
            case "pause":
                one.status = Trial.PAUSED
            case "end":
                controller.end(one)
            case "again":
                controller.add(one)
        if number > 50:  # the last trials run or are paused, so that paused ones are chosen too
            for one in controller.live:
                one.status = Trial.RUNNING if one.status == Trial.PENDING else one.status
        due = FIFOScheduler().choose_trial_to_run(controller)
        assert scheduler.choose_trial_to_run(controller) is due
        chosen.add(due.status if due else None)
    assert chosen >= {Trial.PENDING, Trial.PAUSED}


def test_trials_that_have_ended_are_not_looked_through() -> None:
    controller: Any = Controller(make_scheduler(NoScheduler.Spec(), [], {}))
    first, second = Waiting(0), Waiting(1)
    for one in (first, second):
        controller.add(one)
    first.status = Trial.RUNNING
    controller.end(first)
    first.status = Trial.PENDING  # an implementation that looks at all trials would choose it
    assert controller.scheduler.choose_trial_to_run(controller) is second


def test_rungs_of_the_spec_end_below_the_whole_budget() -> None:
    assert asha().rungs == (0.25, 0.5)
    assert asha(grace=0.1, reduction=3).rungs == (0.1, 0.30000000000000004, 0.9000000000000001)
    assert NoScheduler.Spec().rungs == ()
