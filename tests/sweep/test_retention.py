"""Networks of worse trials are removed, and never one that is needed."""

from pathlib import Path

import pytest

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import checkpoint_folder
from mtcon_ray.base.status import Status
from mtcon_ray.display.results_table import kept_checkpoint, winner_lines
from mtcon_ray.errors import CheckpointError
from mtcon_ray.records.results import TrialResult, load_sweep
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.driver import removable_trials
from mtcon_ray.training import checkpoint
from tests.recorded import results_of
from tests.some import some
from tests.sweep.simulated import Simulation, lines, some_spec

FILES = ["last.pt", "model.pt", "predictions.npz"]
REMOVED = ["predictions.npz", "removed.txt"]


def trial(
    number: int, value: float, status: Status = Status.FINISHED, configuration: int | None = None
) -> TrialResult:
    params = {"train.lr": number if configuration is None else configuration}
    reports = ((2 if status is Status.FINISHED else 1, {MEAN_ACCURACY: value}),)
    return TrialResult(f"trial-{number}", number, params, status, None, 2, 0, reports)


ALL = (
    trial(0, 0.5),
    trial(1, 0.7),
    trial(2, 0.6),
    trial(3, 0.9, Status.PRUNED),  # not to its end, so no winner
    trial(4, 0.1, Status.RUNNING),
    trial(5, 0.1, Status.INTERRUPTED),
    trial(6, 0.8, Status.FAILED),
)
# The first configuration has the better mean, the other the best trial.
SEEDS = [trial(0, 0.70, configuration=0), trial(1, 0.71, configuration=0)]
OTHER = [trial(2, 0.75, configuration=1), trial(3, 0.30, configuration=1)]
FAILED = trial(1, 0.2, Status.FAILED, configuration=0)
BEST = [trial(number, 0.90, configuration=1) for number in (2, 3, 4)]


REMOVABLE = [
    (1, ALL, 7, 1, []),
    (1, ALL, 3, 1, [3, 6]),
    (1, ALL, 1, 1, [2, 0, 3, 6]),
    (2, [*SEEDS, OTHER[0]], 1, 1, [0]),
    (2, [*SEEDS, *OTHER], 1, 1, [0, 3]),
    # As long as the second seed of the better mean is missing, its first one is kept.
    (2, [*OTHER, SEEDS[0]], 1, 2, [3]),
    # A failed seed may be tried again, and change the winner.
    (2, [trial(0, 0.74, configuration=0), FAILED, *OTHER], 1, 2, [3, 1]),
    # Of the seeds that have ended the best one is kept.
    (3, [SEEDS[0], trial(1, 0.8, configuration=0), *BEST], 1, 2, [3, 4, 0]),
]


@pytest.mark.parametrize(("repeats", "trials", "keep", "winner", "expected"), REMOVABLE)
def test_only_ended_trials_that_cannot_win_are_removable(
    repeats: int, trials: list[TrialResult], keep: int, winner: int, expected: list[int]
) -> None:
    search = {"space": {"train.lr": {"uniform": [0.1, 1]}}, "num_trials": 20, "repeats": repeats}
    spec = parse_spec({"name": "x", "train": {"epochs": 2}, "search": search})
    results = results_of(spec, *trials)
    assert results.required_winner().number == winner
    assert removable_trials(results, keep) == [f"trial-{number}" for number in expected]


def test_networks_are_removed_while_trials_end_and_say_so(tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, some_spec(2, {"storage.keep": 1}, num_trials=3), most=3)

    driver, places = simulation.driver(), list[Path]()

    def files() -> list[list[str]]:
        return [sorted(path.name for path in place.iterdir()) for place in places]

    for value in (0.5, 0.7, 0.6):
        name = some(driver.next()).trial
        places.append(checkpoint_folder(driver.folder, name))
        places[-1].mkdir(parents=True)
        for file in FILES:
            checkpoint.save(places[-1] / file, {})
        driver.reported(name, lines(name, 0.1, value), done=True)
    driver.record.end_trial(driver.trials[2], Status.PRUNED, None)
    for number in (0, 1):
        driver.ended(f"trial-000{number}", Status.FINISHED)
    assert files() == [REMOVED, FILES[1:], FILES], "the last process runs"
    # A worker of a stopped trial may write once more.
    checkpoint.save(places[0] / "last.pt", {})
    driver.finish()
    assert files()[0] == REMOVED
    simulation.driver().finish()
    assert files()[2] == REMOVED
    with pytest.raises(CheckpointError, match=r"was removed by storage\.keep: 1; the scores"):
        checkpoint.load(places[0] / "model.pt")
    results = load_sweep(simulation.folder)
    winner = str(places[1] / "model.pt")
    assert [kept_checkpoint(results, trial) for trial in results.trials] == [None, winner, None]
    assert f"checkpoint: {winner}" in winner_lines(results)


def test_a_trial_without_files_gets_none(tmp_path: Path) -> None:
    checkpoint.discard_network(tmp_path / "none", "storage.keep: 1")
    assert list(tmp_path.iterdir()) == []
