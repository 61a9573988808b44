"""Synchronous halving: waiting, continued and stopped trials for every order of arrival."""

from itertools import permutations
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from mtcon_ray.base.status import Status
from mtcon_ray.spec.schedulers import Halving
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.halving import Rung
from mtcon_ray.sweep.searcher import StudySearcher
from mtcon_ray.sweep.study import TRIAL, Suggester, named_trials, open_study
from tests.sweep.still_driver import StillDriver

EPOCHS = 6
VALUES = (0.3, 0.6, 0.5, 0.4, 0.2, 0.1)  # of the trials, at the rung and at the end


def rung_of(num_trials: int = 6, *, epochs: int = EPOCHS) -> Rung:
    """Returns the rung at epoch 2, after which 2 of 6 trials continue."""
    return Rung(Halving.Spec(), num_trials, lambda trial: epochs, every=1)


class Sweep:
    """Searcher and study of six trials with halving; the test calls the searcher as Tune does."""

    def __init__(self, journal: Path | None = None, at_once: int = 6, trials: int = 6) -> None:
        search = SearchSpec.model_validate(
            {
                "space": {"method.temperature": {"grid": [n / 10 for n in range(1, 10)]}},
                "sampler": "grid",
                "num_trials": trials,
            }
        )
        self.study = open_study(journal, "s")
        self.given = 0
        self.driver = driver = StillDriver()
        opened = [t for t in named_trials(self.study) if t.state is TrialState.RUNNING]
        rung = rung_of(trials)
        self.searcher = StudySearcher(
            Suggester(self.study, search, 0),
            [t for t in opened if not rung.waits(t)],
            driver,
            max_concurrent=at_once,
            rung=rung,
        )

    @property
    def ended(self) -> list[tuple[str, Status]]:
        """Names and outcomes of the trials that have ended, in order."""
        return [(t.user_attrs[TRIAL], outcome) for t, outcome, _ in self.driver.ends]

    def ask(self) -> tuple[str, Any]:
        self.given += 1
        tune_id = f"tune-{self.given}"
        return tune_id, self.searcher.suggest(tune_id)

    def train(self, tune_id: str, config: dict[str, Any], value: float | None = None) -> None:
        """Trains a trial up to the epoch in its configuration, and ends it there."""
        value = VALUES[int(config["trial"][-1]) % 6] if value is None else value
        end = config["until"] or EPOCHS
        self.searcher.on_trial_result(tune_id, {"epoch": end, "objective": value})
        outcome = Status.WAITING if config["until"] else Status.FINISHED
        self.searcher.on_trial_complete(
            tune_id, {"epoch": end, "objective": value, "outcome": outcome}
        )

    def run(self) -> None:
        """Runs one trial after another to the end."""
        while True:
            tune_id, config = self.ask()
            if config == "FINISHED":
                return
            self.train(tune_id, config)

    def epochs(self) -> dict[str, int]:
        return {
            t.user_attrs[TRIAL]: max(t.intermediate_values, default=0)
            for t in named_trials(self.study)
        }


EXPECTED = {f"trial-000{n}": epochs for n, epochs in enumerate((2, 6, 6, 2, 2, 2))}


@pytest.mark.parametrize("order", list(permutations(range(6)))[::131])
def test_who_continues_does_not_depend_on_who_comes_first(order: tuple[int, ...]) -> None:
    sweep = Sweep()
    given = [sweep.ask() for _ in range(6)]
    for i in order[:-1]:
        sweep.train(*given[i])
        assert sweep.ask()[1] is None
    sweep.train(*given[order[-1]])
    sweep.run()
    assert sweep.epochs() == EXPECTED
    states = [t.state.name for t in named_trials(sweep.study)]
    assert states == ["PRUNED", "COMPLETE", "COMPLETE", "PRUNED", "PRUNED", "PRUNED"]
    assert sweep.ended[-1] == ("trial-0002", Status.FINISHED)


def test_a_trial_that_has_reported_its_rung_and_not_ended_is_waited_for() -> None:
    sweep = Sweep()
    given = [sweep.ask() for _ in range(6)]
    for each in given[1:]:
        sweep.train(*each)
    sweep.searcher.on_trial_result(given[0][0], {"epoch": 2, "objective": 0.9})
    assert sweep.ask()[1] is None
    sweep.train(*given[0], value=0.9)
    assert [sweep.ask()[1]["trial"] for _ in range(2)] == ["trial-0000", "trial-0001"]


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_driver_killed_anywhere_is_followed_by_one_that_decides_the_same(
    tmp_path: Path, cut: int
) -> None:
    first = Sweep(tmp_path / "journal", at_once=1)
    for _ in range(cut):
        first.train(*first.ask())
    first.ask()  # suggested, and lost with the driver
    second = Sweep(tmp_path / "journal")
    second.run()
    assert second.epochs() == EXPECTED
    assert [t.state.name for t in named_trials(second.study)].count("COMPLETE") == 2


def test_a_failed_trial_is_not_waited_for() -> None:
    sweep = Sweep()
    given = [sweep.ask() for _ in range(6)]
    sweep.searcher.on_trial_complete(given[1][0], {"outcome": "FAILED"})
    for i in (0, 2, 3, 4, 5):
        sweep.train(*given[i])
    sweep.run()
    assert sweep.epochs() == {**EXPECTED, "trial-0001": 0, "trial-0003": 6}


def test_no_value_is_the_worst_value() -> None:
    sweep = Sweep()
    given = [sweep.ask() for _ in range(6)]
    for i, (tune_id, config) in enumerate(given):
        sweep.train(tune_id, config, value=float("nan") if i == 1 else None)
    assert {sweep.ask()[1]["trial"] for _ in range(2)} == {"trial-0002", "trial-0003"}


def test_a_sweep_that_grows_gives_new_trials_the_new_places(tmp_path: Path) -> None:
    Sweep(tmp_path / "journal").run()
    grown = Sweep(tmp_path / "journal", trials=9)
    for value in (0.2, 0.7, 0.8):
        tune_id, config = grown.ask()
        grown.train(tune_id, config, value=value)
    # Of nine trials three continue, and two have done so.
    tune_id, config = grown.ask()
    assert (config["trial"], config["until"]) == ("trial-0008", None)
    grown.train(tune_id, config)
    assert grown.ask()[1] == "FINISHED"


def test_a_trial_of_one_epoch_trains_to_its_end() -> None:
    study = optuna.create_study(direction="maximize")
    study.ask()
    (trial,) = study.get_trials()
    assert rung_of(epochs=1).until(trial) is None


def test_no_place_is_left_once_the_survivors_are_beyond_the_rung() -> None:
    def trial(number: int, state: TrialState, last: int) -> optuna.trial.FrozenTrial:
        values = dict.fromkeys(range(1, last + 1), 0.5)
        value = 0.5 if state is TrialState.COMPLETE else None
        made = optuna.trial.create_trial(state=state, value=value, intermediate_values=values)
        made.number = number
        return made

    late = trial(5, TrialState.RUNNING, 2)
    survivors = [trial(number, TrialState.COMPLETE, EPOCHS) for number in (0, 1)]
    assert rung_of().settled([*survivors, late], {}) == ([], [late])
