"""Every registered scheduler acts on a running sweep."""

from typing import Literal

import pytest
from ray.tune.schedulers import FIFOScheduler

from mtcon_ray.errors import SpecError
from mtcon_ray.search.schedulers import SCHEDULERS, SchedulerSpec
from mtcon_ray.search.spec import SearchSpec
from mtcon_ray.sweep.early_stopping import ACTING, early_stopping
from mtcon_ray.sweep.study import preview


class MedianSpec(SchedulerSpec):
    """A scheduler that nobody gave an acting half."""

    name: Literal["median"] = "median"


def test_every_registered_scheduler_has_an_acting_half_and_the_other_way_round() -> None:
    assert list(ACTING) == list(SCHEDULERS)


@pytest.mark.parametrize("name", list(SCHEDULERS))
def test_a_scheduler_with_rungs_can_stop_trials(name: str) -> None:
    """And one without rungs is Tune's plain order."""
    spec = SCHEDULERS[name].Spec()  # type: ignore[call-arg]
    stopping = early_stopping(spec)
    scheduler = stopping.tune_scheduler([], {})
    acts = type(scheduler) is not FIFOScheduler or stopping.rungs(12, lambda trial: 9, 1)
    assert bool(acts) is bool(spec.rungs)


def test_a_plan_refuses_a_scheduler_without_an_acting_half() -> None:
    search = SearchSpec.model_validate({"space": {"train.lr": {"uniform": [0.1, 1]}}})
    search = search.model_copy(update={"scheduler": MedianSpec()})
    expected = r"search\.scheduler must be one that .* \(asha, halving, none\), got 'median'"
    with pytest.raises(SpecError, match=expected):
        preview(search, 0)
