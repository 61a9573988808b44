"""The executor without Ray, with trials that only follow a formula."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.base.status import Status
from mtcon_ray.errors import SpecError, StorageError
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import run_here
from mtcon_ray.sweep.trial import Assignment
from tests.sweep.simulated import Simulation, line, some_spec

Run = Callable[[Callable[[str], Iterator[dict[str, Any]]]], Driver]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Returns a function that runs a sweep of two trials by their results, given their names."""

    def run(results: Callable[[str], Iterator[dict[str, Any]]]) -> Driver:
        spec = some_spec(2, num_trials=2)
        driver = Simulation(tmp_path, spec).driver()
        monkeypatch.setattr("mtcon_ray.sweep.here.reports", lambda w, *_, **__: results(w.name))
        monkeypatch.setattr(Assignment, "read", lambda c: Assignment(c["trial"], spec, tmp_path))
        run_here(driver, {}, torch.device("cpu"))
        return driver

    return run


def result(name: str, epoch: int, **fields: Any) -> dict[str, Any]:
    return {"lines": [line(name, epoch, 0.5)], "outcome": Status.RUNNING, "done": False, **fields}


def test_trials_are_trained_in_turn_and_each_report_is_durable_at_once(run: Run) -> None:
    given: list[str] = []

    def results(name: str) -> Iterator[dict[str, Any]]:
        given.append(name)
        yield result(name, 1)
        yield result(name, 2, outcome=Status.FINISHED, done=True)

    driver = run(results)
    assert given == ["trial-0000", "trial-0001"]
    assert [trial.status for trial in driver.trials] == [Status.FINISHED] * 2
    assert driver.record.log.lag == 0.0, "during an epoch nobody makes reports durable"


def test_a_refused_trial_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--retry-failed` gives it out, too."""
    monkeypatch.setattr(Assignment, "read", Mock(side_effect=SpecError("momentum")))
    run_here(driver := Simulation(tmp_path, some_spec()).driver(), {}, torch.device("cpu"))
    assert [(t.status, t.reason) for t in driver.trials] == [(Status.FAILED, "momentum")] * 4


def test_an_unexpected_error_loses_one_trial(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def results(name: str) -> Iterator[dict[str, Any]]:
        yield result(name, 1)
        if name == "trial-0000":
            raise KeyError("kernel")
        yield result(name, 2, outcome=Status.FINISHED, done=True)

    first, second = run(results).trials
    assert (first.status, first.reason) == (Status.FAILED, "KeyError: 'kernel'")
    assert first.last_epoch == 1
    assert second.status is Status.FINISHED
    assert caplog.text.count("Traceback") == 2, "it was tried twice"


def test_a_full_disk_of_the_log_loses_no_trial(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Driver, name: str, lines: list[str], *, done: bool = False) -> bool:
        raise StorageError("the disk is full")

    monkeypatch.setattr(Driver, "reported", full)
    with pytest.raises(StorageError, match="the disk is full"):
        run(lambda name: iter([result(name, 1)]))


def test_an_error_of_every_trial_ends_the_sweep(run: Run) -> None:
    halted = {"done": True, "halt": "the images have changed", "note": "a note"}
    driver = run(lambda name: iter([result(name, 1, outcome=Status.INTERRUPTED, **halted)]))
    assert driver.stop_reason == "the images have changed"
    assert [trial.status for trial in driver.trials] == [Status.INTERRUPTED]
