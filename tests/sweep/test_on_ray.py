"""Ray Tune's searcher, scheduler and callback, called as Tune calls them."""

import errno
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from ray import cloudpickle
from ray.exceptions import RayActorError
from ray.tune.experiment import Trial
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.connection import sweep_environment
from mtcon_ray.errors import PreemptedError
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.sweep import driver, on_ray as executor
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.record import SweepRecord
from tests.some import some
from tests.sweep.simulated import Simulation, line, some_spec

MINUTES = 2


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (executor, driver):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: Sweep.now))


class Sweep:
    """A driver with Tune's objects. `now` is the time of all sweeps."""

    now = 1000.0

    def __init__(self, folder: Path, most: int = 2, **search: Any) -> None:
        self.callbacks = Mock(Callbacks)
        simulation = Simulation(folder, some_spec(3, **search), most=most)
        self.driver: Driver = simulation.driver(self.callbacks)
        self.register, self.waits = Mock(), False  # for the nodes of its workers
        self.watch = executor.Watch(self.driver, self.register, lambda _: self.waits)
        self.searcher = executor.TuneSearcher(self.driver, self.watch)
        self.scheduler = executor.TuneScheduler(self.driver)

    def trial(self, name: str, status: str = Trial.RUNNING) -> Trial:
        trial = Trial("none", stub=True, config={"trial": name})
        trial.status = status
        return trial

    def wait(self, seconds: float, *trials: Trial) -> None:
        """Lets time pass in ten steps of Tune's loop."""
        for _ in range(10):
            Sweep.now += seconds / 10
            self.watch.on_step_begin(iteration=1, trials=list(trials))

    @property
    def statuses(self) -> list[tuple[Status, str | None]]:
        return [(trial.status, trial.reason) for trial in self.driver.trials]


def result(*epochs: int, name: str = "trial-0000", **fields: Any) -> dict[str, Any]:
    lines = [line(name, epoch, 0.1 * epoch) for epoch in epochs]
    return {"lines": lines, "outcome": Status.RUNNING, "done": False, **fields}


def test_tune_is_told_to_wait_while_trials_run_and_to_finish_at_the_end(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, most=1, num_trials=2)
    for tune_id, name in (("a", "trial-0000"), ("b", "trial-0001")):
        assert sweep.searcher.suggest(tune_id)["trial"] == name
        assert sweep.searcher.suggest("other") is None
        ended = result(1, 2, 3, name=name, outcome=Status.FINISHED, done=True)
        sweep.searcher.on_trial_complete(tune_id, ended)
    assert sweep.searcher.suggest("c") == Searcher.FINISHED
    assert sweep.statuses == [(Status.FINISHED, None)] * 2


def test_the_driver_decides_after_each_result(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, scheduler={"name": "asha", "grace": 0.3})
    assert all(map(sweep.searcher.suggest, "ab"))
    first, second = sweep.trial("trial-0000"), sweep.trial("trial-0001")
    decide: Any = sweep.scheduler.on_trial_result
    assert decide(None, first, result(1, 2)) == TrialScheduler.CONTINUE
    low = {"lines": [line("trial-0001", 1, 0.01)], "done": False}
    assert decide(None, second, low) == TrialScheduler.STOP
    # Tune gives the result again to the searcher.
    sweep.searcher.on_trial_complete("b", {**low, "done": True})
    assert [status for status, _ in sweep.statuses] == [Status.RUNNING, Status.PRUNED]


def test_a_lost_process_counts_once_though_tune_tells_it_twice(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, max_failures=1)
    assert sweep.searcher.suggest("a")["trial"] == "trial-0000"
    for _ in range(2):
        sweep.searcher.on_trial_complete("a", error=True)
    assert sweep.statuses == [(Status.RUNNING, None)]
    assert sweep.searcher.suggest("b")["trial"] == "trial-0000", "it is given out again"
    ((note,), _) = sweep.callbacks.on_note.call_args
    sweep.callbacks.on_note.assert_called_once()
    assert note.startswith("trial-0000: its process was lost (log: ")
    assert note.endswith("it is tried again from its last checkpoint")
    sweep.searcher.on_trial_complete("b", error=True)
    ((status, reason),) = sweep.statuses
    assert status is Status.FAILED
    assert str(reason).startswith("its process was lost (log: ")


@pytest.mark.parametrize("ending", [{"error": True}, {"result": result(1)}])
def test_what_ends_during_a_stop_is_interrupted(ending: dict[str, Any], tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    assert sweep.searcher.suggest("a")
    sweep.driver.halt("SIGTERM")
    sweep.searcher.on_trial_complete("a", **ending)
    assert sweep.statuses == [(Status.INTERRUPTED, None)]
    assert sweep.searcher.suggest("b") == Searcher.FINISHED


def test_all_processes_are_told_of_a_stop_again_and_again(tmp_path: Path) -> None:
    """The register may restart, and is empty then."""
    sweep = Sweep(tmp_path)
    sweep.wait(10)
    sweep.register.stop.assert_not_called()
    sweep.driver.halt("SIGTERM")
    sweep.wait(10)
    assert sweep.register.stop.call_count > 1


def test_a_loss_is_told_by_its_last_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, file, text = Sweep(tmp_path), tmp_path / "error.pkl", tmp_path / "error.txt"
    sweep.wait(1, sweep.trial("trial-0000"))
    monkeypatch.setattr(Trial, "pickled_error_file", None)
    monkeypatch.setattr(Trial, "error_file", str(text))
    assert sweep.watch.loss_of("trial-0000", {}) == ("its process was lost", False)
    text.write_text("Failure # 1 (at noon)\nold\nFailure # 1 (at one)\nKeyError: 'colour'\n")
    assert sweep.watch.loss_of("trial-0000", {}) == ("KeyError: 'colour'", False)
    monkeypatch.setattr(Trial, "pickled_error_file", str(file))
    for preempted in (False, True):
        file.write_bytes(cloudpickle.dumps(RayActorError(error_msg="gone", preempted=preempted)))
        assert sweep.watch.loss_of("trial-0000", {}) == ("KeyError: 'colour'", preempted)
    result = {"lost": "worker 1: gone", "preempted": True}
    assert sweep.watch.loss_of("trial-0000", result) == ("worker 1: gone", True)


@pytest.mark.parametrize(("reason", "preempted"), [("gone", True), (f"{PreemptedError}", False)])
def test_preemptions_of_a_trial_have_no_limit(reason: str, preempted: bool, tmp_path: Path) -> None:
    """Also a trial that missed its driver, though the driver lives."""
    sweep = Sweep(tmp_path, max_failures=0)
    for tune_id in "abc":
        assert sweep.searcher.suggest(tune_id)["trial"] == "trial-0000"
        lost = {"lost": reason, "preempted": preempted, "done": True}
        sweep.searcher.on_trial_complete(tune_id, lost)
    assert sweep.statuses == [(Status.RUNNING, None)]
    resumed = SweepRecord(sweep.driver.folder, sweep.driver.spec)
    assert [trial.num_lost for trial in resumed.trials.values()] == [0]
    assert '"counts": false' in resumed.log.path.read_text()
    name = "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE"
    assert sweep_environment(1)[name] == "1", "Tune would start the trial again itself"


@pytest.mark.parametrize("has_epochs", [False, True])
def test_tune_is_entered_again_after_an_unknown_error(
    tmp_path: Path, has_epochs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, register, entries = Sweep(tmp_path, max_failures=0), Mock(), list[int]()

    def enter(driver: Driver, *_: Any) -> None:
        number = len(entries) + 1
        entries.append(number)
        name = some(driver.next()).trial
        assert name == "trial-0000", "it is given out again"
        if has_epochs and number in (2, 4):
            driver.reported(name, [line(name, number // 2, 0.5)])
        raise RuntimeError(f"Tune's own error {number}")

    monkeypatch.setattr(executor, "Register", lambda: register)
    monkeypatch.setattr(executor, "_enter_tune", enter)
    watch = Mock(return_value=nullcontext())
    monkeypatch.setattr(executor, "ending_with_ray", watch)
    last = 7 if has_epochs else 3  # 4 of the epoch, and 3 without
    with pytest.raises(RuntimeError, match=f"own error {last}$"):
        executor.train_on_ray(sweep.driver, lambda name: {"register": name}, 2, print)
    watch.assert_called_once_with(print)  # a later watch would leave out a Ray that has ended
    assert register.end.call_count == last, "a process of the former loop could write"
    assert f"RuntimeError: Tune's own error {last - 1}" in sweep.callbacks.on_note.call_args.args[0]
    assert sweep.statuses == [(Status.RUNNING, None)], "the error is not the trial's"


def test_a_full_disk_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path))
    register, enter = Mock(), Mock(side_effect=full)
    monkeypatch.setattr(executor, "Register", register)
    monkeypatch.setattr(executor, "_enter_tune", enter)
    with pytest.raises(OSError, match="No space"):
        executor.train_on_ray(Sweep(tmp_path).driver, lambda name: {}, 2, print)
    register.return_value.end.assert_called_once_with()
    enter.assert_called_once()


def test_a_trial_that_stands_still_is_ended_with_its_reason(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, stall_minutes=MINUTES)
    sweep.searcher.suggest("a")
    trial = sweep.trial("trial-0000")
    for epoch in (1, 2):
        sweep.wait(60 * MINUTES, trial)
        sweep.register.end.assert_not_called()
        sweep.driver.reported("trial-0000", [line("trial-0000", epoch, 0.5)])
    sweep.wait(60 * MINUTES + 60, trial)
    sweep.register.end.assert_called_once_with("trial-0000")
    reason, _ = sweep.watch.loss_of("trial-0000", {"lost": "worker 1 died", "preempted": False})
    assert reason.startswith("no new epoch for 2 minutes")


def test_a_trial_that_waits_for_its_place_is_not_ended(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, stall_minutes=MINUTES)
    sweep.waits = True
    sweep.searcher.suggest("a")
    trial = sweep.trial("trial-0000", Trial.PENDING)
    sweep.wait(300 * MINUTES, trial)
    trial.status = Trial.RUNNING
    sweep.wait(300 * MINUTES, trial)
    sweep.register.end.assert_not_called()
    sweep.waits = False
    sweep.wait(90 * MINUTES, trial)
    sweep.register.end.assert_called_once_with("trial-0000")


@pytest.mark.parametrize("of_both", [(Trial.RUNNING, Trial.PENDING), (Trial.TERMINATED,) * 2])
def test_a_sweep_stops_if_no_trial_is_placed(of_both: tuple[str, str], tmp_path: Path) -> None:
    """The time counts since one ran or none waited."""
    sweep = Sweep(tmp_path)
    sweep.driver.spec = with_values(sweep.driver.spec, {"resources.gpus": 2})
    both = [sweep.trial(f"trial-000{n}", status) for n, status in enumerate(of_both)]
    sweep.wait(2 * executor.PLACEMENT_SECONDS, *both)
    both[0].status, both[1].status = Trial.TERMINATED, Trial.PENDING
    sweep.wait(executor.PLACEMENT_SECONDS, *both)
    assert not sweep.driver.stopping
    sweep.wait(10, *both)
    assert sweep.driver.stop_reason == (
        "no trial could be placed for 900 s: trial-0001 waits for 1 CPUs and 2 GPUs per worker, "
        "which the cluster does not give"
    )
