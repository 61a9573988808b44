"""The driver's decisions and its record, without Ray: also after a kill at any moment."""

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

from mtcon_ray.base.paths import event_file
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.training.checkpoint import discard_resume_state
from tests.run_log import RunLog
from tests.some import some
from tests.sweep.simulated import Killed, Simulation, line, lines, outcomes, some_spec

RANGE = {"method.temperature": {"loguniform": [0.05, 1]}}
ASHA = {"name": "asha", "grace": 0.5}
SEARCHES: dict[str, dict[str, Any]] = {
    "grid": {},
    "random": {"space": RANGE, "sampler": "random", "num_trials": 8},
    "tpe": {"space": RANGE, "sampler": "tpe", "num_trials": 8},
    "qmc": {"space": RANGE, "sampler": "qmc", "num_trials": 8},
    "gp": {"space": RANGE, "sampler": "gp", "num_trials": 6},
    "asha": {"space": RANGE, "sampler": "random", "num_trials": 10, "scheduler": ASHA},
    "halving": {"space": RANGE, "sampler": "random", "num_trials": 9, "scheduler": "halving"},
    "repeats": {"repeats": 2},
}
SIDE_BY_SIDE = [("grid", 2), ("random", 2), ("qmc", 2), ("halving", 2)]


def kill_at(number: int) -> Mock:
    """Returns a point of the simulation: raises Killed at the call of this number, from 0."""
    return Mock(side_effect=[*[None] * number, Killed])


@pytest.mark.parametrize(("search", "most"), [*((name, 1) for name in SEARCHES), *SIDE_BY_SIDE])
def test_kills_of_a_driver_change_nothing(search: str, most: int, tmp_path: Path) -> None:
    spec = some_spec(**SEARCHES[search])
    expected = outcomes(Simulation(tmp_path / "whole", spec, most=most).run())
    random, num_kills = Random(search), 0
    cut = Simulation(tmp_path / "cut", spec, most=most, save_every=2)
    while True:
        cut.at_point = kill_at(random.randrange(1, 30))
        try:
            results = cut.run()
            break
        except Killed:
            num_kills += 1
            cut.running.clear()
    assert num_kills >= 3
    assert outcomes(results) == expected
    assert not results.lost


def test_a_trial_without_events_is_not_waited_for(tmp_path: Path) -> None:
    sweep = Simulation(tmp_path, some_spec())
    sweep.run()
    RunLog(sweep.folder, "trial-0001").remove()
    (driver := sweep.driver()).begin()
    assert (driver.next(), driver.is_over) == (None, True)


def test_records_precede_their_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver is killed before and after each write and each removal."""
    spec = some_spec(2, space={"method.temperature": {"grid": [0.2, 0.1]}}, scheduler=ASHA)
    expected = outcomes(Simulation(tmp_path / "whole", spec).run())
    assert [status for _, _, status, *_ in expected] == [Status.FINISHED, Status.PRUNED]
    point, removed = Mock(), list[str]()
    write, discard = EventLog._write, discard_resume_state

    def written(log: EventLog, lines: list[str], *, sync: bool) -> None:
        point()
        write(log, lines, sync=sync)
        point()

    def discarded(folder: Path) -> None:
        point()
        log = event_file(folder.parents[1]).read_text().splitlines()
        ends = [text for text in log if '"end"' in text and folder.name in text]
        assert ends, "the end is in the log before the resume state is removed"
        removed.append(folder.name)
        discard(folder)
        point()

    monkeypatch.setattr(EventLog, "_write", written)
    monkeypatch.setattr("mtcon_ray.sweep.record.discard_resume_state", discarded)
    for number in range(200):
        simulation = Simulation(tmp_path / f"kill-{number}", spec)
        point = simulation.at_point = kill_at(number)
        try:
            simulation.run()
            break
        except Killed:
            simulation.running.clear()
        point = simulation.at_point = Mock()
        assert outcomes(simulation.run()) == expected
    assert number > 20
    assert {"trial-0000", "trial-0001"} <= set(removed)


@pytest.mark.parametrize("seed", range(20))
def test_a_log_cut_anywhere_after_a_trial_s_start_loses_nothing(seed: int, tmp_path: Path) -> None:
    """The checkpoint is older or newer than the log."""
    random, spec = Random(seed), some_spec(8)
    expected = outcomes(Simulation(tmp_path / "whole", spec).run())
    save_every, at_point = random.randrange(1, 5), kill_at(random.randrange(40, 100))
    cut = Simulation(tmp_path / "cut", spec, save_every=save_every, at_point=at_point)
    with pytest.raises(Killed):
        cut.run()
    cut.running.clear()
    log = event_file(cut.folder)
    data = log.read_bytes()
    first = data.index(b"\n", data.rfind(b'"kind": "start"')) + 1
    log.write_bytes(data[: random.randrange(first, len(data) + 1)])
    cut.at_point = Mock()
    results = cut.run()
    assert outcomes(results) == expected
    assert not results.lost


def test_a_lost_process_is_tried_again_as_often_as_the_spec_says(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "a", some_spec(max_failures=2))
    driver = simulation.driver()
    for number in range(3):
        task = some(driver.next())
        assert (task.trial, task.tries) == ("trial-0000", number + 1)
        driver.lost(task.trial, "its node was lost")
    trial = driver.record.trials["trial-0000"]
    assert (trial.status, trial.reason) == (Status.FAILED, "its node was lost")
    assert some(driver.next()).trial == "trial-0001"
    # Each start of the sweep has its own count.
    again = simulation.driver(retry_failed=True)
    task = some(again.next())
    assert task.tries > 4, "names of checkpoints never repeat"
    again.lost(task.trial, "again")
    assert again.record.trials[task.trial].is_open


def test_no_more_trials_at_a_time_than_asked_for_and_none_after_a_stop(tmp_path: Path) -> None:
    driver = Simulation(tmp_path / "a", some_spec(), most=2).driver()
    first, second = some(driver.next()), some(driver.next())
    assert driver.next() is None
    driver.halt("SIGTERM")
    driver.ended(first.trial, Status.INTERRUPTED)
    assert driver.next() is None
    assert not driver.is_over
    driver.ended(second.trial, Status.RUNNING)
    assert driver.is_over
    assert {trial.status for trial in driver.trials} == {Status.INTERRUPTED}


def test_a_sweep_ends_when_its_space_is_exhausted(tmp_path: Path) -> None:
    space = {"method.temperature": {"uniform": [0.3, 0.30000000000000004]}}  # two numbers
    driver = Simulation(tmp_path, some_spec(space=space, sampler="random", num_trials=3)).driver()
    while task := driver.next():
        driver.ended(task.trial, Status.FAILED, "it diverged")
    assert len(driver.trials) < 3
    assert driver.is_over


def test_a_configuration_that_the_spec_refuses_fails_alone(tmp_path: Path) -> None:
    """A listed text is read as a number too."""
    pairs = {"train.momentum": [0.0, 0.9], "train.optimizer.nesterov": [False, True]}
    space = {field: {"grid": values} for field, values in pairs.items()}
    spec = some_spec(space={**space, "train.patience": {"grid": ["2"]}}, scheduler="halving")
    trials = sorted(Simulation(tmp_path, spec).run().trials, key=lambda t: t.status.name)
    assert "momentum must be positive with optimizer.nesterov" in str(trials[0].reason)
    assert [t.status.name for t in trials] == ["FAILED", "FINISHED", "PRUNED", "PRUNED"]


def test_reports_of_recorded_epochs_and_after_the_end_change_nothing(tmp_path: Path) -> None:
    driver = Simulation(tmp_path / "a", some_spec(2)).driver()
    name = some(driver.next()).trial
    assert driver.reported(name, [line(name, 1, 0.5)])
    before = event_file(driver.folder).read_bytes()
    assert driver.reported(name, [line(name, 1, 0.7)])
    assert event_file(driver.folder).read_bytes() == before
    driver.reported(name, [line(name, 2, 0.6)], done=True)
    driver.ended(name, Status.FINISHED)
    before = event_file(driver.folder).read_bytes()
    driver.reported(name, [line(name, 3, 0.9)])
    assert event_file(driver.folder).read_bytes() == before
    assert driver.record.trials[name].values == {1: 0.5, 2: 0.6}


def test_a_failed_trial_is_trained_again_only_if_asked_for(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path / "a", some_spec(2, num_trials=1))
    driver = simulation.driver()
    driver.ended(some(driver.next()).trial, Status.FAILED, "Diverged: the loss is nan")
    assert driver.is_over
    assert not simulation.run().winner
    assert [trial.status for trial in simulation.run(retry_failed=True).trials] == [Status.FINISHED]
    assert simulation.suggested == ["trial-0000"]


def test_a_process_lost_after_the_last_epoch_or_at_a_rung_loses_nothing(tmp_path: Path) -> None:
    """The trial has finished, or waits. It is not given out again."""
    done = Simulation(tmp_path / "done", some_spec(2)).driver()
    task = some(done.next())
    done.reported(task.trial, lines(task.trial, 0.5, 0.6))
    done.lost(task.trial, "its node was lost")
    assert done.record.trials[task.trial].status is Status.FINISHED

    halved = Simulation(tmp_path / "rung", some_spec(6, scheduler="halving")).driver()
    task = some(halved.next())
    assert task.until == 2
    halved.reported(task.trial, lines(task.trial, 0.5, 0.6))
    halved.lost(task.trial, "its node was lost")
    assert some(halved.next()).trial == "trial-0001"


def test_a_survivor_lost_before_its_next_probe_fails_in_the_end(tmp_path: Path) -> None:
    driver = Simulation(tmp_path, some_spec(6, scheduler="halving")).driver()
    for place in range(driver.num_trials):
        trial = some(driver.next()).trial
        driver.reported(trial, lines(trial, 0.5, 0.9 - place / 10))
        driver.ended(trial, Status.WAITING)
    for _ in range(driver.spec.search.max_failures + 1):
        best = some(driver.next()).trial
        driver.lost(best, "it crashed")
    assert (best, driver.record.trials[best].status) == ("trial-0000", Status.FAILED)


def test_a_trial_that_has_ended_by_itself_is_not_stopped_early(tmp_path: Path) -> None:
    """It sent its last epochs together, and a rung is among them."""
    driver = Simulation(tmp_path / "a", some_spec(scheduler=ASHA), most=2).driver()
    for score in (0.9, 0.1):
        name = some(driver.next()).trial
        driver.reported(name, lines(name, *[score] * 4), done=True)
        driver.ended(name, Status.FINISHED)
        assert driver.record.trials[name].status is Status.FINISHED
