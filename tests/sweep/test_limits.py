"""The limits of a sweep on hours, and sweeps that end at a limit."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Earlier, Ended, last_change
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.run import run_sweep
from tests import specs
from tests.some import some
from tests.sweep.simulated import Simulation, lines, some_spec

SEARCH = {"space": {"method.temperature": {"uniform": [0.1, 1]}}, "num_trials": 3}
SPEC = parse_spec({**specs.TINY, "name": "tiny", "search": SEARCH})


def test_at_the_limit_no_new_trial_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running trials are finished."""
    now = 0.0
    monkeypatch.setattr("mtcon_ray.sweep.driver.time.monotonic", lambda: now)
    driver = Simulation(tmp_path, some_spec(max_hours=2), most=2).driver()
    first = some(driver.next())
    now += 2 * 3600
    assert driver.next() is None
    assert not driver.is_over, "the running trial is finished"
    driver.reported(first.trial, lines(first.trial, *[0.5] * 4), done=True)
    driver.ended(first.trial, Status.FINISHED)
    assert driver.is_over
    assert driver.finish() == "search.max_hours 2 is reached: 1 of 4 trials have ended"


def test_repeated_epochs_are_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("mtcon_ray.sweep.driver.time.monotonic", lambda: now)
    driver = Simulation(tmp_path, some_spec(stall_minutes=1)).driver()
    name = some(driver.next()).trial
    for _ in range(3):
        driver.reported(name, lines(name, 0.5))
        now += 50
        assert not driver.has_stalled(name)
    driver.reported(name, [])
    now += 50
    assert driver.has_stalled(name)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """Returns a sweep whose driver was killed after one of its trials, while another one ran."""
    simulation = Simulation(tmp_path, SPEC, most=2)
    driver = simulation.driver()
    first, second = some(driver.next()).trial, some(driver.next()).trial
    driver.reported(first, lines(first, 0.5, 0.5))
    driver.ended(first, Status.FINISHED)
    driver.reported(second, lines(second, 0.5))
    return simulation.folder


def run(spec: RunSpec, root: Path, name: str, **options: Any) -> SweepResults:
    return run_sweep(spec, root=root, name=name, here=True, callbacks=Callbacks(), **options)


def test_a_sweep_without_time_left_ends_with_its_report(begun: Path, tmp_path: Path) -> None:
    results = run(with_values(SPEC, {"search.max_hours": 1e-9}), tmp_path, begun.name, resume=True)
    assert [t.status for t in results.trials] == [Status.FINISHED, Status.INTERRUPTED]
    end = last_change([e for e in read_events(event_file(begun)) if e.trial is None])
    assert isinstance(end, Ended)
    assert (end.status, end.tags["mtcon.winner"]) == ("FINISHED", "trial-0000")
    reached = "search.max_hours 1e-09 is reached: 1 of 3 trials have ended"
    command = f"`mtcon-ray resume s-1 --root {tmp_path}`"
    assert end.tags["mtcon.reason"] == f"{reached}; to continue: {command}"


def test_earlier_trials_are_in_the_log_and_not_in_the_results(begun: Path, tmp_path: Path) -> None:
    following = with_values(SPEC, {"search.start_from": [begun.name], "search.max_hours": 1e-9})
    results = run(following, tmp_path, "next")
    assert results.trials == ()
    events = read_events(event_file(results.folder))
    (earlier,) = (event for event in events if isinstance(event, Earlier))
    assert (earlier.source, earlier.value) == ("s-1/trial-0000", 0.5)
