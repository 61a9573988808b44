"""ASHA with trials of different lengths, and rules of plugins."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from ray.tune.schedulers import AsyncHyperBandScheduler, TrialScheduler

from mtcon_ray.errors import SpecError
from mtcon_ray.spec import schedulers
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.stopping import Rule, Rungs, make_stopping
from mtcon_ray.sweep.suggester import preview
from tests.plugs import registered


def asha(**fields: float) -> Rungs:
    return Rungs(schedulers.ASHA.model_validate({"grace": 0.25, "reduction": 2, **fields}))


def test_a_value_that_is_no_number_stops_no_trial_and_no_other() -> None:
    stopping = asha()
    assert not stopping.stops("none", 1 / 4, float("nan"))
    assert not stopping.stops("first", 1 / 4, 0.2)
    assert stopping.stops("second", 1 / 4, 0.1)


def test_a_rung_at_a_share_that_binary_fractions_miss_is_met() -> None:
    stopping = asha(grace=0.1, reduction=3)
    for name, share, value in (("bad", 0.1, 0.1), ("good", 0.1, 0.9), ("good", 0.3, 0.9)):
        assert not stopping.stops(name, share, value)
    assert stopping.stops("bad", 0.3, 0.1)


@pytest.mark.parametrize("reduction", [2.0, 3.0])
def test_decisions_are_those_of_ray_tunes_asha(reduction: float) -> None:
    """30 trials of 20 epochs train one after another and are probed every second epoch."""
    tune = AsyncHyperBandScheduler(
        time_attr="t", metric="m", mode="max", max_t=100, grace_period=25,
        reduction_factor=reduction, stop_last_trials=False,
    )  # fmt: skip
    own, stopped = asha(reduction=reduction), 0
    for number in range(30):
        trial: Any = SimpleNamespace(trial_id=f"{number}")
        tune.on_trial_add(None, trial)  # type: ignore[arg-type]
        for epoch in range(2, 20, 2):
            value = ((number * 7919 + 7 * epoch) % 31) / 31
            answer = tune.on_trial_result(None, trial, {"t": 5 * epoch, "m": value})  # type: ignore[arg-type]
            assert own.stops(trial.trial_id, epoch / 20, value) == (answer == TrialScheduler.STOP)
            if answer == TrialScheduler.STOP:
                stopped += 1
                break
    assert 5 < stopped < 29


class Falling(schedulers.StoppingRule):
    """Stops a trial that fell, once any other trial has a higher value."""

    class Spec(schedulers.SchedulerSpec):
        name: Literal["falling"] = "falling"

    def stops(self, trial: schedulers.History, others: Sequence[schedulers.History]) -> bool:
        values = [value for _, value in trial]
        others_best = max((value for other in others for _, value in other), default=0.0)
        return values[-1] < values[0] and others_best > values[-1]


def test_a_stopping_rule_sees_its_trial_and_all_others() -> None:
    with registered(schedulers.SCHEDULERS, Falling):
        stopping = make_stopping(Falling.Spec())
    assert isinstance(stopping, Rule)
    assert not stopping.stops("old", 1 / 4, 0.7)
    assert not stopping.stops("old", 2 / 4, 0.6), "it fell, but no other trial is better"
    assert not stopping.stops("other", 1 / 4, 0.9)
    assert stopping.stops("old", 3 / 4, 0.5)


def test_a_scheduler_that_stops_nothing_is_refused_by_the_plan() -> None:
    search = SearchSpec().model_copy(update={"scheduler": Falling.Spec()})
    refused = pytest.raises(SpecError, match="or a StoppingRule, got 'falling'")
    with registered(schedulers.SCHEDULERS, type("Idle", (), {"Spec": Falling.Spec})), refused:
        preview(search, 0)


@pytest.mark.parametrize("name", list(schedulers.SCHEDULERS))
def test_a_registered_scheduler_with_rungs_can_stop_trials(name: str) -> None:
    """By early stopping, or by waiting at rungs."""
    spec = schedulers.SCHEDULERS.spec(name)()
    acts = make_stopping(spec) is not None
    assert (acts or isinstance(spec, schedulers.Halving)) is bool(spec.rungs)
