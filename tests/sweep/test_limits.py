"""The limits of a sweep on hours, and on time without progress."""

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import journal_file, parent_log, sweep_folder, trial_log
from mtcon_ray.base.status import Status
from mtcon_ray.plan.local import this_machine
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Reported, last_change
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep import driver
from mtcon_ray.sweep.limits import LOOK_SECONDS, PLACEMENT_SECONDS, Limits
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import continued_trials
from mtcon_ray.sweep.stop_request import Stop
from mtcon_ray.sweep.study import PRIOR, Suggester, open_study
from tests.plans import plan_of
from tests.sweep.small_sweeps import TINY

HOUR = 3600.0
MINUTES = 2


class Sweep(Callbacks):
    """A sweep without Ray, whose clock is set; keeps notes and killed actors."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        sections: dict[str, Any] = {
            k: options.pop(k) for k in ("search", "resources") if k in options
        }
        spec = parse_spec({"name": "x", **sections})
        self.now = 1000.0
        self.killed: list[str] = []
        self.notes: list[str] = []
        self.stop = Stop(folder)
        self.limits = Limits(folder, spec, self, self.stop, clock=lambda: self.now, **options)
        self.trials = [self.trial(name) for name in ("trial-0000", "trial-0001")]
        self.log = EventLog(trial_log(folder, "trial-0000"))
        monkeypatch.setattr("mtcon_ray.sweep.limits.ray.kill", self.killed.append)

    def trial(self, name: str) -> Trial:
        trial = Trial("none", stub=True, config={"trial": name})
        trial.status = Trial.TERMINATED
        trial.temporary_state = cast(Any, SimpleNamespace(ray_actor=name))
        return trial

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def wait(self, seconds: float) -> list[str]:
        """Lets time pass in ten steps of Tune's loop; returns the actors killed so far."""
        for _ in range(10):
            self.now += seconds / 10
            self.limits.on_step_end(iteration=1, trials=self.trials)
        return self.killed

    def result(self, **fields: Any) -> None:
        self.limits.on_trial_result(1, self.trials, self.trials[0], fields)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sweep]:
    return lambda **options: Sweep(tmp_path, monkeypatch, **options)


@pytest.fixture
def stalling(make: Callable[..., Sweep]) -> Callable[..., Sweep]:
    """Returns a function that makes a sweep with search.stall_minutes and one running trial."""

    def stalling(**options: Any) -> Sweep:
        sweep = make(**{"search": {"stall_minutes": MINUTES}} | options)
        sweep.trials[0].status = Trial.RUNNING
        return sweep

    return stalling


def test_hours_count_from_the_start_of_the_driver(make: Callable[..., Sweep]) -> None:
    limited, unlimited = make(spent=9 * HOUR, search={"max_hours": 2}), make()
    limited.now += 2 * HOUR - 1
    assert limited.limits.exceeded is None
    limited.now += 1
    assert limited.limits.exceeded == "search.max_hours 2 is reached"
    unlimited.now += 2 * HOUR
    assert unlimited.limits.exceeded is None


def test_device_hours_count_ended_and_running_trials_of_all_drivers(
    make: Callable[..., Sweep],
) -> None:
    sweep = make(spent=HOUR, search={"max_device_hours": 7}, resources={"gpus": 2})
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


def test_a_trial_that_stands_still_is_ended_with_its_reason(stalling: Callable[..., Sweep]) -> None:
    sweep = stalling()
    assert sweep.wait(60 * MINUTES) == []
    assert sweep.limits.reason_of("trial-0000") is None
    assert sweep.wait(60) == ["trial-0000"]
    (note,) = sweep.notes
    assert note.startswith("trial-0000: no new epoch for 2 minutes (search.stall_minutes, ")
    assert str(sweep.limits.reason_of("trial-0000")).startswith("no new epoch for 2 minutes")
    sweep.result(epoch=1)
    assert sweep.limits.reason_of("trial-0000") is None, "it continues"
    assert sweep.wait(60 * MINUTES) == ["trial-0000"]
    assert sweep.wait(60 * MINUTES) == ["trial-0000", "trial-0000"]


def test_an_epoch_without_a_probe_is_progress(stalling: Callable[..., Sweep]) -> None:
    sweep = stalling()
    for epoch in range(1, 5):
        sweep.log.append(Reported(epoch=epoch, metrics={}))
        assert sweep.wait(48 * MINUTES) == []


def test_a_trial_that_does_not_run_is_not_ended(stalling: Callable[..., Sweep]) -> None:
    sweep = stalling()
    sweep.trials[0].status = Trial.PENDING
    assert sweep.wait(300 * MINUTES) == []
    sweep.trials[0].status = Trial.RUNNING
    assert sweep.wait(60 * MINUTES) == []
    sweep.trials[0].status = Trial.TERMINATED
    assert sweep.wait(300 * MINUTES) == []


def test_a_trial_whose_workers_wait_for_their_nodes_is_not_ended(
    stalling: Callable[..., Sweep],
) -> None:
    waiting = True
    sweep = stalling(waits=lambda _: waiting)
    assert sweep.wait(300 * MINUTES) == []
    waiting = False
    assert sweep.wait(120 * MINUTES) == ["trial-0000"]


def test_without_a_limit_no_trial_is_ended(stalling: Callable[..., Sweep]) -> None:
    assert stalling(search={}).wait(1000 * HOUR) == []


def test_a_trial_that_is_never_placed_stops_the_sweep(make: Callable[..., Sweep]) -> None:
    sweep = make(resources={"gpus": 2})
    sweep.trials[1].status = Trial.PENDING
    sweep.wait(PLACEMENT_SECONDS)
    assert not sweep.stop.asked
    sweep.wait(10 * LOOK_SECONDS)
    assert sweep.stop.reason == (
        "no trial could be placed for 900 s: trial-0001 waits for 1 CPUs and 2 GPUs per worker, "
        "which the cluster does not give"
    )


@pytest.mark.parametrize("of_both", [(Trial.RUNNING, Trial.PENDING), (Trial.TERMINATED,) * 2])
def test_the_time_counts_from_when_a_trial_ran_or_none_waited(
    of_both: tuple[str, str], make: Callable[..., Sweep]
) -> None:
    sweep = make()
    sweep.trials[0].status, sweep.trials[1].status = of_both
    sweep.wait(2 * PLACEMENT_SECONDS)
    sweep.trials[0].status, sweep.trials[1].status = Trial.TERMINATED, Trial.PENDING
    sweep.wait(PLACEMENT_SECONDS)
    assert not sweep.stop.asked
    sweep.wait(10 * LOOK_SECONDS)
    assert sweep.stop.asked


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
    end = last_change(EventLog.read(parent_log(folder)))
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
    assert load_sweep(folder).spec.search.max_device_hours == 1e-9


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
