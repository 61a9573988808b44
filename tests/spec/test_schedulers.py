"""Rungs in epochs, the number of survivors, and total epochs known before the start."""

from typing import Any

import pytest

from mtcon_ray.spec.run_spec import dump_spec, parse_spec, with_scheduler, with_values
from mtcon_ray.spec.schedulers import ASHA, Halving, NoScheduler


def test_a_third_of_the_trials_continues_at_a_third_of_the_epochs() -> None:
    spec = Halving.Spec()
    assert spec.survivors(12) == 4
    assert spec.survivors(2) == 1
    assert spec.rung_epochs(18, every=1) == (6,)
    assert spec.epochs_known(12, 18, every=1) == 12 * 6 + 4 * 12


def test_a_rung_is_where_a_probe_is() -> None:
    assert Halving.Spec().rung_epochs(20, every=4) == (8,)
    assert ASHA.Spec(grace=0.25, reduction=4).rung_epochs(3, every=2) == (2,)
    assert ASHA.Spec(grace=0.25, reduction=2).rung_epochs(10, every=2) == (4, 6)


def test_rounding_moves_no_rung() -> None:
    """The shares 0.3 and 0.9 of ten epochs are not exact in binary."""
    assert ASHA.Spec(grace=0.1, reduction=3).rung_epochs(10, every=1) == (1, 3, 9)
    assert Halving.Spec().rung_epochs(9, every=1) == (3,)


def test_what_depends_on_values_is_not_known_beforehand() -> None:
    assert NoScheduler.Spec().epochs_known(12, 18, every=1) == 216
    assert ASHA.Spec().epochs_known(12, 18, every=1) is None


@pytest.mark.parametrize(
    ("search", "name"),
    [
        ({"num_trials": 9}, "none"),
        ({"num_trials": 10}, "asha"),
        ({"num_trials": 5, "repeats": 2}, "asha"),
        ({"num_trials": 9, "scheduler": {"name": "asha"}}, "asha"),
        ({"num_trials": 90, "scheduler": {"name": "none"}}, "none"),
        ({"num_trials": 9, "scheduler": None}, "none"),
    ],
)
def test_early_stopping_that_is_not_named_begins_at_ten_trials(
    search: dict[str, Any], name: str
) -> None:
    space = {"train.lr": {"uniform": [0.1, 1]}}
    spec = parse_spec({"name": "x", "search": {"space": space, **search}})
    assert spec.scheduler.name == name
    written = with_scheduler(spec)
    assert written.search.scheduler == written.scheduler == spec.scheduler
    assert parse_spec(dump_spec(written)) == written


def test_a_resumed_sweep_keeps_the_scheduler_that_was_recorded() -> None:
    space = {"space": {"train.lr": {"uniform": [0.1, 1]}}}
    recorded = with_scheduler(parse_spec({"name": "x", "search": {**space, "num_trials": 9}}))
    grown = parse_spec({"name": "x", "search": {**space, "num_trials": 12}})
    assert with_scheduler(grown).scheduler.name == "asha"
    assert with_scheduler(grown, recorded).scheduler.name == "none"
    named = with_values(grown, {"search.scheduler": {"name": "halving"}})
    assert with_scheduler(named, recorded) == named
