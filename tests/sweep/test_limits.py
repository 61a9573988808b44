"""The limits of a sweep on hours, and sweeps that end at a limit."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.base.status import Status
from mtcon_ray.plan.local import this_machine
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Earlier, Ended, last_change
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.limits import Limits
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.run import run_sweep
from tests.plans import plan_of
from tests.sweep.simulated import line
from tests.sweep.small_sweeps import TINY

HOUR = 3600.0


class Clocked:
    """Limits with a clock that the test sets."""

    def __init__(self, spent: float = 0.0, **sections: Any) -> None:
        self.now = 1000.0
        spec = parse_spec({"name": "x", **sections})
        self.limits = Limits(spec, spent, clock=lambda: self.now)


def test_hours_count_from_the_start_of_the_driver() -> None:
    limited, unlimited = Clocked(9 * HOUR, search={"max_hours": 2}), Clocked()
    limited.now += 2 * HOUR - 1
    assert limited.limits.exceeded is None
    limited.now += 1
    assert limited.limits.exceeded == "search.max_hours 2 is reached"
    unlimited.now += 2 * HOUR
    assert unlimited.limits.exceeded is None


def test_device_hours_count_ended_and_running_trials_of_all_drivers() -> None:
    sweep = Clocked(HOUR, search={"max_device_hours": 7}, resources={"gpus": 2})
    limits, begun = sweep.limits, sweep.now
    limits.started("a")
    limits.started("b")
    sweep.now += HOUR / 2
    limits.ended("a")
    limits.ended("not given out")
    assert limits.exceeded is None  # 2 x (1 + 1/2 + 1/2)
    sweep.now = begun + 2 * HOUR - 1
    assert limits.exceeded is None
    sweep.now = begun + 2 * HOUR  # 2 x (1 + 1/2 + 2)
    assert limits.exceeded == "search.max_device_hours 7 is reached, a resume needs a higher one"


@pytest.mark.parametrize(
    ("resources", "devices"),
    [({}, 1), ({"workers": 4}, 1), ({"gpus": 0.5}, 0.5), ({"gpus": 2, "workers": [1, 2]}, 4)],
)
def test_devices_of_a_trial_are_its_gpus(resources: dict[str, Any], devices: float) -> None:
    assert parse_spec({"name": "x", "resources": resources}).resources.devices == devices


def test_a_trial_without_a_new_epoch_has_stalled() -> None:
    sweep = Clocked(search={"stall_minutes": 2})
    sweep.limits.started("a")
    sweep.now += 120
    assert sweep.limits.stalled() == []
    sweep.now += 1
    assert sweep.limits.stalled() == ["a"]
    assert sweep.limits.stall_reason.startswith("no new epoch for 2 minutes (search.stall_minutes")
    sweep.limits.progressed("a")
    assert sweep.limits.stalled() == []
    sweep.limits.ended("a")
    sweep.now += 999
    assert sweep.limits.stalled() == []
    assert Clocked().limits.stalled() == []


class Notes(Callbacks):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def on_note(self, text: str) -> None:
        self.notes.append(text)


def begin(root: Path, spec: RunSpec) -> Path:
    """Writes a sweep whose driver was killed after one of its trials, while another one ran."""
    folder = sweep_folder(root, "limited")
    folder.mkdir(parents=True)
    write_beginnings(folder, spec, plan_of(spec, root, this_machine()))
    record = SweepRecord(folder, spec)
    record.begin({}, [], [])
    driver = Driver(folder, spec, record, Callbacks(), max_concurrent=2)
    for last in (2, 1):
        task = driver.next()
        assert task is not None
        driver.reported(task.trial, [line(task.trial, n, 0.5) for n in range(1, last + 1)])
        if last == 2:
            driver.ended(task.trial, Status.FINISHED)
    return folder


@pytest.mark.usefixtures("no_ray")
def test_a_sweep_without_time_left_ends_with_its_report_and_can_go_on(tmp_path: Path) -> None:
    space = {"method.temperature": {"uniform": [0.1, 1]}}
    search = {"space": space, "num_trials": 3}
    train = {"epochs": 2, "batch_size": 32}
    spec = parse_spec({**TINY, "train": train, "tracking": {"offline": True}, "search": search})
    folder, shown = begin(tmp_path, spec), Notes()
    limited = with_values(spec, {"search.max_device_hours": 1e-9})
    results = run_sweep(limited, root=tmp_path, name="limited", resume=True, callbacks=shown)

    assert results.winner is not None
    assert [t.status for t in results.trials] == [Status.FINISHED, Status.INTERRUPTED]
    end = last_change(list(load_sweep(folder).events))
    assert isinstance(end, Ended)
    assert (end.status, end.tags["mtcon.winner"]) == ("FINISHED", "trial-0000")
    why = end.tags["mtcon.reason"]
    assert why in shown.notes
    told = (
        "search.max_device_hours 1e-09 is reached, a resume needs a higher one: 1 of 3 trials have "
        "ended"
    )
    assert why.startswith(told)
    assert load_sweep(folder).spec.search.max_device_hours == 1e-9


@pytest.mark.usefixtures("no_ray")
def test_earlier_trials_are_in_a_sweeps_log_and_not_in_its_results(tmp_path: Path) -> None:
    space = {"method.temperature": {"uniform": [0.1, 1]}}
    train = {"epochs": 2, "batch_size": 32}
    spec = parse_spec(
        {**TINY, "train": train, "tracking": {"offline": True}, "search": {"space": space}}
    )
    begin(tmp_path, spec)
    following = with_values(spec, {"search.start_from": ["limited"], "search.max_hours": 1e-9})
    results = run_sweep(following, root=tmp_path, name="next", callbacks=Callbacks())
    assert results.trials == ()
    events = read_events(event_file(results.folder))
    (earlier,) = (event for event in events if isinstance(event, Earlier))
    assert (earlier.source, earlier.value) == ("limited/trial-0000", 0.5)
