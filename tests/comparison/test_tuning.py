"""Equal tuning without training: the sweeps that follow from the YAML, and what they choose."""

import csv
from dataclasses import replace
from typing import Any

import pytest
import yaml

from mtcon_ray.base.status import Status
from mtcon_ray.comparison.row import Row
from mtcon_ray.comparison.summary import trials_csv, tuning_markdown
from mtcon_ray.comparison.tuning import again_spec, best_points
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.records.results import SweepResults, TrialResult
from mtcon_ray.spec.run_spec import RunSpec, with_values
from tests.comparison.conftest import Load
from tests.recorded import results_of, trial_of
from tests.some import some

LR, TEMPERATURE, CROP = "train.lr", "method.temperature", "views.crop_scale"
WHOLE, HALF = [0.2, 1.0], [0.5, 1.0]
TUNE: dict[str, Any] = {
    "epochs": 4,
    "num_trials": 6,
    "again": 2,
    "sampler": "random",
    "scheduler": {"name": "halving"},
    "space": {
        LR: {"loguniform": [0.01, 1.0]},
        TEMPERATURE: {"uniform": [0.1, 0.5]},
        CROP: {"choice": [WHOLE, HALF]},
    },
    "first_points": [{LR: 0.2, TEMPERATURE: 0.2}, {TEMPERATURE: 0.3}],
}
SYSTEMS: dict[str, Any] = {
    "Random": {"method": "none", "tuned": False, "seeds": 1},
    "MTCon": {"method": "mtcon"},
    "XEnt": {
        "method": "xent",
        "space": {TEMPERATURE: None, LR: {"loguniform": [0.01, 0.2]}, "train.momentum": {
            "uniform": [0.5, 0.9]}},
    },
}  # fmt: skip
FEW: dict[str, Any] = {
    "base": {"data": {"kind": "synthetic"}, "train": {"epochs": 8}, "seed": 5},
    "systems": SYSTEMS,
    "tune": TUNE,
}


def test_each_tuned_system_has_its_sweeps(load: Load) -> None:
    comparison = load(**FEW)
    assert list(comparison.tuning) == ["MTCon", "XEnt"]
    tuning = comparison.tuning["MTCon"]
    first, again, final = tuning.first, some(tuning.again), comparison.specs["MTCon"]
    names = [spec.name for spec in (first, again, final)]
    assert names == ["few-mtcon-tune", "few-mtcon-again", "few-mtcon"]
    assert [spec.train.epochs for spec in (first, again, final)] == [4, 8, 8]
    assert [spec.evaluate.test for spec in (first, again, final)] == [False, False, True]
    counts = [s.search.num_configurations * s.search.repeats for s in (first, again, final)]
    assert counts == [6, 2, 3]
    assert [s.scheduler.name for s in (first, again, final)] == ["halving", "none", "none"]
    assert (first.search.sampler, list(first.search.space)) == ("random", [LR, TEMPERATURE, CROP])
    assert first.search.first_points == ({LR: 0.2, TEMPERATURE: 0.2}, {TEMPERATURE: 0.3})
    assert again.search.first_points == ()
    assert again.search.scheduler is not None, "ten best would be stopped early"
    listed = load("tune.space.train.lr={choice: [0.2]}", "tune.seeds=4", **FEW)
    assert listed.tuning["MTCon"].first.search.space[LR].values == (0.2,)
    assert listed.specs["MTCon"].search.repeats == 4
    assert LR not in load("train.lr=0.3", **FEW).tuning["MTCon"].first.search.space
    limits = load("search={max_failures: 7, max_hours: 9}", "tune.max_hours=3", **FEW)
    for search in (spec.search for spec in limits.tuning["MTCon"] if spec):
        assert (search.max_failures, search.max_hours) == (7, 3)


def test_a_system_adds_replaces_and_removes_searched_fields(load: Load) -> None:
    """A first point loses the fields that the system does not search."""
    search = load(**FEW).tuning["XEnt"].first.search
    assert list(search.space) == [LR, CROP, "train.momentum"]
    assert search.space[LR].extremes == (0.01, 0.2)
    assert search.first_points == ({LR: 0.2},)
    given = load("train.lr=0.3", **FEW).tuning["XEnt"].first
    assert (list(given.search.space), given.train.lr) == ([CROP, "train.momentum"], 0.3)
    with pytest.raises(SpecError, match=r"base\.method must be left out: each system has"):
        load("method.temperature=0.1", **FEW)
    own = {"A": {"method": "mtcon", "space": {LR: {"grid": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]}}}}
    few = {**FEW, "tune": TUNE | {"space": {}, "first_points": [], "again": 1}, "systems": own}
    assert load("train.lr=0.3", **few).tuning["A"].first.search.num_configurations == 1


def test_final_seeds_are_none_of_those_of_tuning(load: Load) -> None:
    """Systems that are not tuned have the final seeds too, so that differences are paired."""
    for repeats in (1, 2):
        comparison = load(**{**FEW, "tune": TUNE | {"repeats": repeats, "seeds": 4}})
        for tuning in comparison.tuning.values():
            for spec in (tuning.first, some(tuning.again)):
                assert (spec.seed, spec.search.repeats) == (5, repeats)
        assert {spec.seed for spec in comparison.specs.values()} == {5 + repeats}
        assert [s.search.repeats for s in comparison.specs.values()] == [1, 4, 4]


# Changes of the sections, and below them a part of the message.
WRONG = r"""
{tune: {space: {train.lrr: {grid: [1]}}, first_points: []}, systems: {XEnt: {method: xent}}}
    systems.MTCon, tune: search.space.train.lrr: .*did you mean 'lr'
tune: {again: 7}
    systems.MTCon: tune.again must be at most the number of configurations, got 7 of 6
systems: {None: {method: none}}
    systems.None.tuned must be false for none: it trains nothing
systems: {A: {method: mtcon, tuned: false, space: {train.lr: null}}}
    systems.A.space must be empty unless the system is tuned, got \['train.lr'\]
systems: {A: {method: mtcon, space: {train.lrr: null}}}
    systems.A.space.train.lrr must be in tune.space to be null; did you mean
{tune: {again: 1}, systems: {Few: {method: mtcon, space: {train.lr: ~, method.temperature: ~}}}}
    the same number of configurations in each system, got 6 in 'MTCon' and 2 in 'Few'
""".strip().splitlines()


@pytest.mark.parametrize(("changes", "message"), [*zip(WRONG[::2], WRONG[1::2], strict=True)])
def test_errors_come_before_training(load: Load, changes: str, message: str) -> None:
    """What is wrong is found before the first training."""
    given = {name: {**FEW[name], **section} for name, section in yaml.safe_load(changes).items()}
    with pytest.raises(SpecError, match=message.strip()):
        load(**{**FEW, **given})


def trial(number: int, params: dict[str, Any], *values: float, **fields: Any) -> TrialResult:
    """Returns a trial of four epochs with these values from the first epoch on."""
    reports = tuple(
        (epoch, {"val/accuracy": value, "test/accuracy/shape": 1 - value, "probe/features": 32.0})
        for epoch, value in enumerate(values, start=1)
    )
    own = {"params": params, "seed": 5, "reports": reports, "seconds": 1800.0}
    return trial_of(number, 4, {}, **own | fields)


def point(lr: float, crop: list[float] = WHOLE) -> dict[str, Any]:
    return {LR: lr, TEMPERATURE: 0.2, CROP: crop}


def tuned(spec: RunSpec, *trials: TrialResult) -> SweepResults:
    return results_of(spec, *trials, name=spec.name)


TRIALS = (
    trial(0, point(0.1), 0.5, 0.6, status=Status.PRUNED),
    trial(1, point(0.2), 0.9, status=Status.PRUNED),
    trial(2, point(0.3, HALF), 0.4, 0.5, 0.6, 0.7),
    trial(3, point(0.4), 0.4, 0.5, 0.6, 0.8, status=Status.FAILED),
    trial(4, point(0.5), 0.5, 0.7, status=Status.PRUNED),
    trial(5, point(0.6), status=Status.FAILED),
)


def test_the_best_are_those_that_halving_kept_longest(load: Load) -> None:
    """Failed trials are none of them, whatever their values were; test scores do not count."""
    first = tuned(load(**FEW).tuning["MTCon"].first, *TRIALS)
    assert best_points(first, 2) == [point(0.3, HALF), point(0.5)]
    assert [p[LR] for p in best_points(first, 9)] == [0.3, 0.5, 0.1, 0.2]


def test_a_plateau_is_a_full_training(load: Load) -> None:
    """A trial that ended early because it no longer improved is no worse for it."""
    plateau = replace(trial(0, point(0.1), 0.8, 0.9, 0.9), may_end_early=True)
    long = replace(trial(1, point(0.2), *[0.4] * 4), may_end_early=True)
    first = tuned(load(**FEW).tuning["MTCon"].first, plateau, long)
    assert [p[LR] for p in best_points(first, 3)] == [0.1, 0.2]


def test_equal_lengths_in_another_order_are_equal(load: Load) -> None:
    ends = {0.2: (0.1, 0.3, 1.0), 0.1: (1.0, 0.3, 0.1)}
    trials = [
        replace(trial(3 * i + j, point(lr), *[lr] * round(10 * part), seed=5 + j), epochs=10)
        for i, (lr, parts) in enumerate(ends.items())
        for j, part in enumerate(parts)
    ]
    first = tuned(load("tune.repeats=3", **FEW).tuning["MTCon"].first, *trials)
    assert [p[LR] for p in best_points(first, 2)] == [0.2, 0.1]


def test_with_several_seeds_the_mean_decides(load: Load) -> None:
    values = {(0, 0.1): 0.9, (1, 0.1): 0.1, (2, 0.2): 0.6, (3, 0.2): 0.5}
    trials = [trial(i, point(lr), *[v] * 4, seed=5 + i % 2) for (i, lr), v in values.items()]
    lost = trial(4, point(0.3), *[0.95] * 4)
    sweep = load("tune.repeats=2", **FEW).tuning["MTCon"].first
    assert [p[LR] for p in best_points(tuned(sweep, *trials, lost), 3)] == [0.2, 0.1, 0.3]


def test_the_best_are_trained_again_and_the_winner_finally(load: Load) -> None:
    comparison = load(**FEW)
    tuning = comparison.tuning["MTCon"]
    again = again_spec(some(tuning.again), tuned(tuning.first, *TRIALS))
    assert again.search.first_points == (point(0.3, HALF), point(0.5))
    assert (again.search.num_configurations, again.train.epochs) == (2, 8)
    last = tuned(again, trial(0, point(0.3, HALF), *[0.6] * 4))
    final = with_values(comparison.specs["MTCon"], last.required_winner().params)
    assert (final.train.lr, final.views.crop_scale, final.train.epochs) == (0.3, (0.5, 1.0), 8)
    assert (final.name, final.seed, final.search.space) == ("few-mtcon", 6, {})


def test_without_a_value_there_is_nothing_to_choose(load: Load) -> None:
    tuning = load(**FEW).tuning["MTCon"]
    failed = tuned(tuning.first, *TRIALS[3::2])
    with pytest.raises(MtconError, match="no trial of 'few-mtcon-tune' has a finite value"):
        again_spec(some(tuning.again), failed)


@pytest.fixture
def rows(load: Load) -> list[Row]:
    comparison = load(**FEW)
    tuning, spec = comparison.tuning["MTCon"], comparison.specs["MTCon"]
    second = trial(2, point(0.3, HALF), *[0.4] * 4, seed=6)  # of the chosen configuration
    trials = trial(0, point(0.3, HALF), *[0.6] * 4), trial(1, point(0.5), 0.7), second
    again = tuned(some(tuning.again), *trials)
    final = results_of(spec, *(trial(i, {}, 0.4, 0.5, 0.6, 0.7, seed=6 + i) for i in range(3)))
    return [
        Row("Random", results_of(comparison.specs["Random"], replace(trial(0, {}, 0.3), epochs=1))),
        Row("MTCon", final, tuned=(tuned(tuning.first, *TRIALS), again)),
        Row("XEnt", None, "out of disk", (tuned(comparison.tuning["XEnt"].first, TRIALS[3]),)),
    ]


def test_the_table_has_costs_and_chosen_values(rows: list[Row]) -> None:
    lines = tuning_markdown(rows).splitlines()
    assert lines[0] == (
        "| system | configurations | epochs | trial-hours | chosen by val/accuracy | lr | "
        "temperature | crop_scale | momentum |"
    )
    assert lines[2] == "| Random | 0 | 1 | 0.50 | — | — | — | — | — |"
    assert lines[3] == "| MTCon | 6 | 13 + 9 + 12 | 6.00 | 0.500 | 0.3 | 0.2 | [0.5, 1.0] | — |"
    assert lines[4] == "| XEnt | 1 | 4 | 0.50 | — | — | — | — | — |"
    assert tuning_markdown(rows[:1]) == ""


def test_every_trial_of_tuning_is_in_the_csv(rows: list[Row]) -> None:
    tuned = [(row.title, sweep) for row in rows for sweep in row.tuned]
    read = list(csv.DictReader(trials_csv(tuned).splitlines()))
    assert len(read) == 6 + 3 + 1
    (third,) = (r for r in read if (r["sweep"], r["trial"]) == ("few-mtcon-tune", "trial-0002"))
    assert third.items() >= {
        "system": "MTCon", "seed": "5", "state": "finished", "epoch": "4", "seconds": "1800.0",
        "value": "0.7", LR: "0.3", TEMPERATURE: "0.2", CROP: "[0.5, 1.0]",
    }.items()  # fmt: skip
