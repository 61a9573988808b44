"""Rungs in epochs, the number of survivors, and total epochs known before the start."""

from typing import Any

import pytest

from mtcon_ray.spec.run_spec import dump_spec, parse_spec, with_scheduler
from mtcon_ray.spec.schedulers import ASHA, Halving, NoScheduler, SchedulerSpec

RUNGS = [
    (Halving(), 18, 1, (6,)),
    (Halving(), 20, 4, (8,)),  # where a probe is
    (Halving(), 9, 1, (3,)),
    (ASHA(grace=0.25, reduction=4), 3, 2, (2,)),
    (ASHA(grace=0.25, reduction=2), 10, 2, (4, 6)),
    (ASHA(grace=0.1, reduction=3), 10, 1, (1, 3, 9)),  # its shares are not exact
    (NoScheduler(), 9, 1, ()),
]


@pytest.mark.parametrize(("spec", "epochs", "every", "rungs"), RUNGS)
def test_rungs(spec: SchedulerSpec, epochs: int, every: int, rungs: tuple[int, ...]) -> None:
    assert spec.rung_epochs(epochs, every) == rungs


def test_epochs_are_known_beforehand_unless_they_depend_on_values() -> None:
    assert [Halving().survivors(number) for number in (12, 2)] == [4, 1]
    assert Halving().epochs_known(12, 18, every=1) == 12 * 6 + 4 * 12
    assert NoScheduler().epochs_known(12, 18, every=1) == 216
    assert ASHA().epochs_known(12, 18, every=1) is None


SCHEDULERS = [
    ({"num_trials": 9}, "none"),
    ({"num_trials": 10}, "asha"),
    ({"num_trials": 50, "repeats": 2}, "none"),
    ({"num_trials": 9, "scheduler": {"name": "asha"}}, "asha"),
    ({"num_trials": 90, "scheduler": {"name": "none"}}, "none"),
    ({"num_trials": 9, "scheduler": None}, "none"),
]


@pytest.mark.parametrize(("search", "name"), SCHEDULERS)
def test_unnamed_early_stopping_begins_at_ten_trials(search: dict[str, Any], name: str) -> None:
    space = {"train.lr": {"uniform": [0.1, 1]}}
    spec = parse_spec({"name": "x", "search": {"space": space, **search}})
    assert spec.scheduler.name == name
    written = with_scheduler(spec)
    assert written.search.scheduler == written.scheduler == spec.scheduler
    assert parse_spec(dump_spec(written)) == written
