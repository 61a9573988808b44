"""The leading trial, the values of trials and the time left."""

import pytest

from mtcon_ray.base.status import Status
from mtcon_ray.display.sweep_progress import SweepProgress, TrialProgress
from mtcon_ray.spec.evaluate import Select
from tests.recorded import plan_with


def sweep_of(num_trials: int, epochs: int, *trials: str) -> SweepProgress:
    """A sweep in which these trials have begun."""
    sweep = SweepProgress("s", plan_with(num_trials=num_trials, epochs=epochs))
    for trial in trials:
        sweep.start(trial, "lr=0.1", epochs, now=0)
    return sweep


def report(sweep: SweepProgress, trial: str, epoch: int, now: float, value: float | None) -> None:
    sweep.report(trial, epoch, sweep.plan.epochs, value, now)


def test_leader_has_its_full_budget() -> None:
    sweep = sweep_of(2, 4, "a", "b")
    report(sweep, "a", 1, 1, 0.9)
    report(sweep, "b", 4, 1, 0.5)
    assert "; best 0.900 (lr=0.1)" in sweep.standing_text()
    sweep.end("b", Status.FINISHED, 0.5)
    assert "; best 0.500 (lr=0.1)" in sweep.standing_text()


@pytest.mark.parametrize(("select", "value"), [("last", 0.4), ("best", 0.7)])
def test_a_trials_value_is_of_the_selected_epoch(select: Select, value: float) -> None:
    sweep = SweepProgress("s", plan_with(select=select))
    for epoch, probed in enumerate((0.5, 0.7, None, 0.4), 1):
        report(sweep, "a", epoch, epoch, probed)
    assert sweep.trials["a"].value == value


def test_time_left_at_the_pace_so_far() -> None:
    """2 s an epoch, two at a time: 2 + 2 epochs left in them and 4 in the third trial."""
    sweep = sweep_of(3, 4, "a", "b")
    assert sweep.seconds_left() is None
    for trial in "ab":
        report(sweep, trial, 1, 2, None)
        report(sweep, trial, 2, 4, None)
    assert sweep.seconds_left() == pytest.approx((2 + 2 + 4) * 2 / 2)
    assert sweep.standing_text() == "0/3 done; about 0:08 left"
    assert sweep.standing_text(running=False) == "0/3 done"
    sweep = sweep_of(2, 8, "a")
    report(sweep, "a", 2, 2, None)
    sweep.end("a", Status.PRUNED, 0.1)
    assert sweep.seconds_left() == pytest.approx(2), "early stopping shortens it"
    sweep.plan = plan_with(epochs_total=5)
    assert sweep.epochs_left() == 3, "with halving they are known"


def test_a_trial_that_is_resumed_keeps_what_it_had() -> None:
    """Its earlier epochs are no pace: an epoch in 5 s; 1 and 8 are left."""
    sweep = sweep_of(2, 8)
    sweep.trials["a"] = TrialProgress("lr=0.1", 6, 8, 0.3, Status.INTERRUPTED)
    sweep.trials["b"] = TrialProgress("lr=0.2", 0, 8, None, Status.INTERRUPTED)
    assert sweep.standing_text().startswith("0/2 done")
    sweep.start("a", "lr=0.1", 8, now=2)
    trial = sweep.trials["a"]
    assert (trial.epoch, trial.epochs, trial.value) == (6, 8, 0.3)
    report(sweep, "a", 7, 7, None)
    assert sweep.seconds_left() == pytest.approx((1 + 8) * 5)
