"""The limits on a sweep's time: no more trials are given out, and the sweep ends with a report."""

import time
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.local import this_machine
from mtcon_ray.metrics import MEAN_ACCURACY
from mtcon_ray.paths import journal_file, parent_log, sweep_folder
from mtcon_ray.recorded import write_beginnings
from mtcon_ray.results import load_sweep
from mtcon_ray.search.spec import SearchSpec
from mtcon_ray.spec import RunSpec, parse_spec, with_values
from mtcon_ray.status import Status
from mtcon_ray.sweep import driver
from mtcon_ray.sweep.budget import Budget
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import continued_trials
from mtcon_ray.sweep.study import PRIOR, Suggester, open_study
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Ended, Reported
from tests.plans import plan_of
from tests.sweep.small_sweeps import TINY

HOUR = 3600.0


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def budget(clock: Clock, devices: float = 1, spent: float = 0, **limits: float) -> Budget:
    return Budget(SearchSpec(**limits), devices=devices, spent=spent, clock=clock)


def test_hours_count_from_the_start_of_the_driver() -> None:
    clock = Clock()
    limited, unlimited = budget(clock, spent=9 * HOUR, max_hours=2), budget(clock)
    clock.now = 2 * HOUR - 1
    assert limited.exceeded is None
    clock.now = 2 * HOUR
    assert limited.exceeded == "search.max_hours 2 is reached"
    assert unlimited.exceeded is None


def test_device_hours_count_ended_and_running_trials_of_all_drivers() -> None:
    clock = Clock()
    limited = budget(clock, devices=2, spent=HOUR, max_device_hours=7)
    limited.started("a")
    limited.started("b")
    clock.now = HOUR / 2
    limited.ended("a")
    limited.ended("one that was not given out")
    assert limited.exceeded is None  # 2 x (1 + 1/2 + 1/2)
    clock.now = 2 * HOUR - 1
    assert limited.exceeded is None
    clock.now = 2 * HOUR  # 2 x (1 + 1/2 + 2)
    assert limited.exceeded == "search.max_device_hours 7 is reached, a resume needs a higher one"


@pytest.mark.parametrize(
    ("resources", "devices"),
    [({}, 1), ({"workers": 4}, 1), ({"gpus": 0.5}, 0.5), ({"gpus": 2, "workers": [1, 2]}, 4)],
)
def test_devices_of_a_trial_are_its_gpus(resources: dict[str, Any], devices: float) -> None:
    assert parse_spec({"name": "x", "resources": resources}).resources.devices == devices


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
    study, record = open_study(journal_file(folder), "limited"), SweepRecord(folder, spec)
    suggester = Suggester(study, spec.search, 0)
    for ends in (True, False):
        trial = suggester.next()
        assert trial is not None
        record.trial_started(trial)
        time.sleep(0.005)  # event logs have milliseconds
        for epoch in (1, 2)[: 1 + ends]:
            record.spool(trial).append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: 0.5}))
        if ends:
            study.tell(trial.number, 0.5)
            record.trial_ended(trial, Status.FINISHED, None)
    return folder


@pytest.mark.usefixtures("no_ray")
def test_a_sweep_without_time_left_ends_with_its_report_and_can_go_on(tmp_path: Path) -> None:
    space = {"method.temperature": {"uniform": [0.1, 1]}}
    search = {"space": space, "num_trials": 3}
    train = {"epochs": 2, "batch_size": 32}
    spec = parse_spec({**TINY, "train": train, "tracking": {"offline": True}, "search": search})
    folder, shown = begin(tmp_path, spec), Notes()
    limited = with_values(spec, {"search.max_device_hours": 1e-9})
    results = driver.run_sweep(limited, root=tmp_path, name="limited", resume=True, callbacks=shown)

    assert results.winner is not None
    assert [t.status for t in results.trials] == [Status.FINISHED, Status.INTERRUPTED]
    end = EventLog.read(parent_log(folder))[-1]
    assert isinstance(end, Ended)
    assert (end.status, end.tags["mtcon.winner"]) == ("FINISHED", "trial-0000")
    why = end.tags["mtcon.reason"]
    assert why in shown.notes
    told = (
        "search.max_device_hours 1e-09 is reached, a resume needs a higher one: 1 of 3 trials have "
        "ended"
    )
    assert why.startswith(told)
    assert len(continued_trials(open_study(journal_file(folder), "limited"))) == 1
    assert load_sweep(folder).recorded.search.max_device_hours == 1e-9


@pytest.mark.usefixtures("no_ray")
def test_earlier_trials_are_in_a_sweeps_study_and_not_in_its_results(tmp_path: Path) -> None:
    space = {"method.temperature": {"uniform": [0.1, 1]}}
    train = {"epochs": 2, "batch_size": 32}
    spec = parse_spec(
        {**TINY, "train": train, "tracking": {"offline": True}, "search": {"space": space}}
    )
    begin(tmp_path, spec)
    following = with_values(spec, {"search.start_from": ["limited"], "search.max_hours": 1e-9})
    results = driver.run_sweep(following, root=tmp_path, name="next", callbacks=Callbacks())
    assert results.trials == ()
    (earlier,) = open_study(journal_file(results.folder), "next").trials
    assert earlier.user_attrs == {PRIOR: "limited/trial-0000"}
    assert earlier.value == 0.5
