"""Optuna's samplers as sweeps use them, and its ranges."""

import importlib
import logging
import sys
from importlib import import_module
from statistics import median

import pytest
from optuna.distributions import FloatDistribution, IntDistribution

from mtcon_ray.sweep.study import Suggester, distribution, open_study
from tests.sweep.studies import run, search, value_of


def test_a_gaussian_process_uses_results() -> None:
    """After its first five, which are random, it tries what is better than random draws."""
    later = {}
    for sampler in ("gp", "random"):
        taken = run(Suggester(open_study(None, "s"), search(sampler=sampler, num_trials=15), 0))
        later[sampler] = median(map(value_of, taken[5:]))
    assert later["gp"] > 0.98 > 0.95 > later["random"]


def test_the_display_is_not_broken_by_a_gaussian_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[logging.LogRecord] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record)

    monkeypatch.setattr(logging.getLogger("optuna"), "handlers", [Ear()])
    monkeypatch.setitem(sys.modules, "greenlet", None)
    importlib.reload(import_module("optuna._gp.batched_lbfgsb"))
    assert [record.getMessage() for record in told] == []


def test_qmc_spreads_its_points() -> None:
    """The first is random; each sixteenth of the range has one of the next 16."""
    spec = search(space={"train.lr": {"uniform": [0, 16]}}, sampler="qmc", num_trials=17)
    taken = run(Suggester(open_study(None, "s"), spec, 0))
    assert sorted(int(params["train.lr"]) for params in taken[1:]) == list(range(16))


def test_steps_and_logarithms_are_optunas() -> None:
    made = {
        name: distribution(search(space={"a": fields}).space["a"])
        for name, fields in {
            "log": {"logint": [1, 64]},
            "stepped": {"int": [16, 64], "step": 16},
            "tenths": {"uniform": [0, 0.3], "step": 0.1},
        }.items()
    }
    assert made == {
        "log": IntDistribution(1, 64, log=True),
        "stepped": IntDistribution(16, 64, step=16),
        "tenths": FloatDistribution(0, 0.3, step=0.1),
    }
