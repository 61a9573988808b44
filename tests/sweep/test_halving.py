"""Synchronous halving: waiting, continued and stopped trials for every order of arrival."""

from itertools import permutations
from pathlib import Path

import pytest

from mtcon_ray.base.status import Status
from mtcon_ray.spec.schedulers import Halving
from mtcon_ray.sweep.driver import Driver, Task
from mtcon_ray.sweep.halving import Rung
from mtcon_ray.sweep.record import Trial
from tests.some import some
from tests.sweep.simulated import Simulation, line, some_spec

EPOCHS = 6
VALUES = (0.3, 0.6, 0.5, 0.4, 0.2, 0.1)  # of the trials, at the rung and at the end


class Sweep:
    """A sweep of six trials with halving. The rung is at epoch 2, and 2 of 6 trials continue."""

    def __init__(self, folder: Path, trials: int = 6) -> None:
        space = {"method.temperature": {"grid": [n / 10 for n in range(1, 10)]}}
        spec = some_spec(EPOCHS, space=space, num_trials=trials, scheduler="halving")
        self.driver: Driver = Simulation(folder, spec, most=6).driver()

    def give(self) -> Task:
        return some(self.driver.next())

    def report(self, task: Task, value: float | None = None) -> None:
        value = VALUES[int(task.trial[-1]) % 6] if value is None else value
        end = task.until or EPOCHS
        lines = [line(task.trial, epoch, value) for epoch in range(task.logged + 1, end + 1)]
        self.driver.reported(task.trial, lines, done=True)

    def train(self, task: Task, value: float | None = None) -> None:
        """Trains a trial to its rung or its end."""
        self.report(task, value)
        self.driver.ended(task.trial, Status.WAITING if task.until else Status.FINISHED)

    def run(self) -> tuple[int, ...]:
        """Runs one trial after another to the end. Returns the epochs of all trials."""
        while not self.driver.is_over:
            self.train(self.give())
        return tuple(trial.last_epoch for trial in self.driver.trials)


@pytest.mark.parametrize("order", list(permutations(range(6)))[::131])
def test_the_order_of_arrival_decides_nothing(order: tuple[int, ...], tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    given = [sweep.give() for _ in range(6)]
    for i in order:
        assert sweep.driver.next() is None
        sweep.train(given[i])
    assert sweep.run() == (2, 6, 6, 2, 2, 2)
    statuses = [trial.status for trial in sweep.driver.trials]
    assert [n for n, status in enumerate(statuses) if status is Status.FINISHED] == [1, 2]
    assert statuses.count(Status.PRUNED) == 4


def test_a_trial_that_has_reported_its_rung_and_not_ended_is_waited_for(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    given = [sweep.give() for _ in range(6)]
    for each in given[1:]:
        sweep.train(each)
    sweep.report(given[0], 0.9)
    assert sweep.driver.next() is None
    sweep.driver.ended(given[0].trial, Status.WAITING)
    assert [sweep.give().trial for _ in range(2)] == ["trial-0000", "trial-0001"]


def test_a_failed_trial_is_not_waited_for_and_no_value_is_the_worst(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    given = [sweep.give() for _ in range(6)]
    sweep.driver.ended(given[1].trial, Status.FAILED, "lost")
    for i in (0, 2, 3, 4, 5):
        sweep.train(given[i], float("nan") if i == 3 else None)
    assert sweep.run() == (6, 0, 6, 2, 2, 2)


def test_a_trial_at_a_plateau_before_the_rung_takes_no_place(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path)
    for task in [sweep.give() for _ in range(6)]:
        if task.trial in ("trial-0000", "trial-0003"):
            sweep.driver.reported(task.trial, [line(task.trial, 1, 0.1)], done=True)
            sweep.driver.ended(task.trial, Status.FINISHED)
        else:
            sweep.train(task)
    assert sweep.run() == (1, 6, 6, 1, 2, 2)


def test_a_sweep_that_grows_gives_new_trials_the_new_places(tmp_path: Path) -> None:
    Sweep(tmp_path).run()
    grown = Sweep(tmp_path, trials=9)
    for value in (0.2, 0.7, 0.8):
        grown.train(grown.give(), value)
    # Of nine trials three continue, and two have done so.
    task = grown.give()
    assert (task.trial, task.until) == ("trial-0008", None)
    grown.train(task)
    assert grown.driver.is_over


def test_a_trial_of_one_epoch_trains_to_its_end() -> None:
    assert Rung(Halving(), 6, every=1).until(Trial("trial-0000", 0, {}, 0, epochs=1)) is None


def test_no_place_is_left_once_the_survivors_are_beyond_the_rung() -> None:
    def trial(number: int, status: Status, last: int) -> Trial:
        values = dict.fromkeys(range(1, last + 1), 0.5)
        return Trial(f"trial-{number}", number, {}, 0, EPOCHS, status=status, values=values)

    late = [trial(number, Status.RUNNING, 2) for number in (4, 5)]
    survivors = [trial(number, Status.FINISHED, EPOCHS) for number in (0, 1, 2)]
    assert Rung(Halving(), 6, every=1).settled([*survivors, *late], {}) == ([], late)
