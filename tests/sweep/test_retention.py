"""Networks of worse trials are removed, and never one that is needed."""

from pathlib import Path

import pytest

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import checkpoint_folder
from mtcon_ray.base.status import Status
from mtcon_ray.display.results_table import kept_checkpoint, winner_lines
from mtcon_ray.errors import CheckpointError
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.records.results import TrialResult, load_sweep
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.retention import Retention, removable_trials
from mtcon_ray.training import checkpoint
from tests.recorded import plan_with, results_of
from tests.sweep.simulated import line

FILES = ("model.pt", "predictions.npz")


def spec_with(**search: object) -> RunSpec:
    space = {"train.lr": {"uniform": [0.1, 1]}}
    search = {"space": space, "num_trials": 20, **search}
    return parse_spec({"name": "x", "train": {"epochs": 2}, "search": search})


def trial(
    number: int, value: float, status: Status = Status.FINISHED, configuration: int | None = None
) -> TrialResult:
    params = {"train.lr": number if configuration is None else configuration}
    reports = ((2 if status is Status.FINISHED else 1, {MEAN_ACCURACY: value}),)
    return TrialResult(f"trial-{number}", number, params, status, None, 2, 0, reports)


def test_only_ended_trials_that_are_worse_are_removable() -> None:
    trials = (
        trial(0, 0.5),
        trial(1, 0.7),
        trial(2, 0.6),
        trial(3, 0.9, Status.PRUNED),  # not to its end, so no winner
        trial(4, 0.1, Status.RUNNING),
        trial(5, 0.1, Status.INTERRUPTED),
        trial(6, 0.8, Status.FAILED),
    )
    results = results_of(spec_with(), *trials)
    assert removable_trials(results, 7) == []
    assert removable_trials(results, 3) == ["trial-3", "trial-6"]
    assert removable_trials(results, 1) == ["trial-2", "trial-0", "trial-3", "trial-6"]


def test_with_repeats_a_configuration_that_may_still_win_keeps_its_best_seed() -> None:
    spec = spec_with(repeats=2)
    seeds = [trial(0, 0.70, configuration=0), trial(1, 0.71, configuration=0)]
    other = [trial(2, 0.75, configuration=1), trial(3, 0.30, configuration=1)]
    open_ = results_of(spec, *seeds, other[0])
    assert open_.winner == seeds[1]
    assert removable_trials(open_, 1) == ["trial-0"]
    whole = results_of(spec, *seeds, *other)
    assert whole.winner == seeds[1], "although trial-2 is the best trial"
    assert removable_trials(whole, 1) == ["trial-0", "trial-3"]
    # As long as the second seed of the better mean is missing, its first one is kept.
    early = results_of(spec, *other, seeds[0])
    assert removable_trials(early, 1) == ["trial-3"]
    lost = trial(1, 0.2, Status.FAILED, configuration=0)
    tried_again = results_of(spec, trial(0, 0.74, configuration=0), lost, *other)
    assert tried_again.winner == other[0], "the retry may change that"
    assert removable_trials(tried_again, 1) == ["trial-3", "trial-1"]


def test_of_the_seeds_that_have_ended_the_best_one_is_kept() -> None:
    spec = spec_with(repeats=3)
    begun = [trial(0, 0.70, configuration=0), trial(1, 0.80, configuration=0)]
    best = [trial(number, 0.90, configuration=1) for number in (2, 3, 4)]
    removable = removable_trials(results_of(spec, *begun, *best), 1)
    assert removable == ["trial-3", "trial-4", "trial-0"]


def train(record: SweepRecord, name: str, value: float) -> None:
    trial = record.start(name, {"train.lr": value}, 0, 0)
    record.report(trial, [line(name, 1, 0.1), line(name, 2, value)])
    checkpoints = record.checkpoints(trial)
    checkpoints.mkdir(parents=True)
    for file in ("last.pt", *FILES):
        checkpoint.save(checkpoints / file, {})


def files_of(folder: Path, name: str) -> list[str]:
    return sorted(path.name for path in checkpoint_folder(folder, name).iterdir())


def test_networks_are_removed_while_trials_end_and_say_so(tmp_path: Path) -> None:
    folder = tmp_path / "sweeps" / "x-1"
    folder.mkdir(parents=True)
    write_beginnings(folder, spec_with(), plan_with())
    record = SweepRecord(folder, spec_with())
    retention = Retention(load_sweep(folder), 1, [])
    for name, value in (("trial-0000", 0.5), ("trial-0001", 0.7), ("trial-0002", 0.6)):
        train(record, name, value)
        if name != "trial-0002":
            record.end_trial(record.trials[name], Status.FINISHED, None)
            retention.ended(record.result(record.trials[name]))
    removed = ["predictions.npz", "removed.txt"]
    assert files_of(folder, "trial-0000") == removed
    assert files_of(folder, "trial-0001") == ["last.pt", *FILES]
    assert files_of(folder, "trial-0002") == ["last.pt", *FILES], "it has not ended"
    # A worker of a stopped trial may write once more.
    checkpoint.save(checkpoint_folder(folder, "trial-0000") / "last.pt", {})
    retention.finish()
    assert files_of(folder, "trial-0000") == removed
    record.end_trial(record.trials["trial-0002"], Status.FINISHED, None)
    resumed = map(record.result, record.trials.values())
    Retention(load_sweep(folder), 1, resumed).finish()  # as a resumed driver
    assert files_of(folder, "trial-0002") == removed
    path = checkpoint_folder(folder, "trial-0000") / "model.pt"
    with pytest.raises(CheckpointError, match=r"was removed by storage\.keep: 1; the scores"):
        checkpoint.load(path)
    results = load_sweep(folder)
    kept = [kept_checkpoint(results, trial) for trial in results.trials]
    winner = str(checkpoint_folder(folder, "trial-0001") / "model.pt")
    assert kept == [None, winner, None]
    assert f"checkpoint: {winner}" in winner_lines(results)


def test_a_trial_without_files_gets_none(tmp_path: Path) -> None:
    checkpoint.discard_network(tmp_path / "none", "storage.keep: 1")
    assert list(tmp_path.iterdir()) == []
