"""Figures of curves: noise, temperature, epochs, batch size, threshold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import (
    batch_size_figure,
    epochs_disasters,
    epochs_figure,
    multisupcon_threshold,
    noise_figure,
    temperature_disasters,
    temperature_figure,
)
from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.experiment import Experiment, Outcome, Trained
from mtcon_ray import metrics
from mtcon_ray.status import Status
from tests.experiments.pretended import all_trained, setting
from tests.recorded import plan_with

FIGURES = {
    each.name: each
    for each in (
        noise_figure.EXPERIMENT,
        temperature_figure.EXPERIMENT,
        epochs_figure.EXPERIMENT,
        batch_size_figure.EXPERIMENT,
        multisupcon_threshold.EXPERIMENT,
    )
}


def with_weights(each: Trained, weights: Mapping[str, float]) -> Trained:
    """Returns a cell whose trainings have these weights by column, and a plan with five classes."""
    results = each.row.results
    assert results is not None
    values = {metrics.weight(column): weight for column, weight in weights.items()}
    trials = tuple(replace(t, reports=((1, {**t.last_metrics, **values}),)) for t in results.trials)
    plan = plan_with(classes=dict.fromkeys((*results.spec.data.tasks, "tilt"), 5))
    return replace(each, row=replace(each.row, results=replace(results, trials=trials, plan=plan)))


def without_seed(each: Trained, seed: int) -> Trained:
    """Returns a cell of which one seed has failed."""
    results = each.row.results
    assert results is not None
    trials = tuple(
        replace(t, status=Status.FAILED) if t.seed == seed else t for t in results.trials
    )
    return replace(each, row=replace(each.row, results=replace(results, trials=trials)))


def noise_outcome(
    where: Setting,
    accuracies: Mapping[Cell, Sequence[float]],
    failed: Mapping[Cell, int] | None = None,
) -> Outcome:
    """Returns the noise figure, where the weight of the task with wrong labels is 1 - share / 2.

    `failed` has the seed that failed, by cell.
    """
    experiment = noise_figure.EXPERIMENT
    trained = all_trained(where, [*experiment.cells(where)], accuracies)
    found = {}
    for cell, each in trained.items():
        share = cell.noise[0][1] if cell.noise else 0.0
        columns = [each.place(task)[1] for task in cell.tasks]
        wrong = each.place("closure" if cell.data == "zappos50k" else "disaster_types")[1]
        weights = {c: 1 - share / 2 if c == wrong else 1.0 for c in columns}
        if cell.key == "mtcon-equal":
            weights = dict.fromkeys(columns, 1.0)
        found[cell] = with_weights(each, weights)
    for cell, seed in (failed or {}).items():
        found[cell] = without_seed(found[cell], seed)
    return experiment.finish(where, found)


@pytest.mark.parametrize("experiment", FIGURES.values(), ids=FIGURES)
@pytest.mark.parametrize("budget", ["smoke", "small", "paper"])
def test_each_value_is_a_training_of_its_own(
    experiment: Experiment, budget: str, tmp_path: Path
) -> None:
    where = setting(tmp_path, budget)
    cells = [*experiment.cells(where)]
    assert len(set(cells)) == len(cells) > 2
    names = {where.spec_of(cell).name for cell in cells}
    assert len(names) == len(cells)


@pytest.mark.parametrize(
    "experiment", [e for n, e in FIGURES.items() if n != "noise_figure"], ids=lambda e: e.name
)
def test_curves_without_a_training_lack_a_picture_but_not_the_rows(
    experiment: Experiment, tmp_path: Path
) -> None:
    where = setting(tmp_path)
    cells = [*experiment.cells(where)]
    none = experiment.finish(where, all_trained(where, cells, {cell: [] for cell in cells}))
    assert none.pictures == {}
    assert {verdict.answer for verdict in none.verdicts} == {"not testable here"}
    whole = experiment.finish(where, all_trained(where, cells, {}))
    assert len(whole.pictures) == 1
    assert len(whole.table) == len(none.table) == len(cells)
    assert [*whole.table.iloc[-2:, 0]] == ["Handcrafted features", "Untrained encoder"]
    assert {verdict.answer for verdict in whole.verdicts} == {"not judged at this budget"}


@pytest.mark.parametrize(("change", "answer"), [(0.05, "holds"), (-0.05, "does not hold")])
@pytest.mark.parametrize(
    "experiment", [epochs_figure.EXPERIMENT, batch_size_figure.EXPERIMENT], ids=lambda e: e.name
)
def test_longer_training_and_larger_batches_are_judged_by_their_trend(
    experiment: Experiment, change: float, answer: str, tmp_path: Path
) -> None:
    where = setting(tmp_path, "small")
    cells = [*experiment.cells(where)]
    rising = {
        c: [0.5 + change * i, 0.51 + change * i, 0.52 + change * i] for i, c in enumerate(cells)
    }
    outcome = experiment.finish(where, all_trained(where, cells, rising))
    assert [verdict.answer for verdict in outcome.verdicts] == [answer, answer]
    first = outcome.table.iloc[0]
    assert first["mean of all tasks (%)"] == pytest.approx(51)
    label = "closure" if "closure (%)" in first else "informative"
    assert first[f"{label} (%), low"] < 51 < first[f"{label} (%), high"]


def test_each_other_temperature_is_compared_with_the_papers(tmp_path: Path) -> None:
    where, experiment = setting(tmp_path, "small"), temperature_figure.EXPERIMENT
    cells = [*experiment.cells(where)]
    usual = Cell("zappos50k", "mtcon")
    assert usual in cells
    outcome = experiment.finish(where, all_trained(where, cells, {usual: [0.7, 0.7, 0.7]}))
    others = len(temperature_figure.ALL) - 1
    assert [verdict.answer for verdict in outcome.verdicts] == ["holds"] * others
    assert "above 0.03" in outcome.verdicts[0].claim
    assert {verdict.author for verdict in outcome.verdicts} == {"this project"}
    disasters = temperature_disasters.EXPERIMENT.cells(where)
    assert {cell.data for cell in disasters} == {"medic"}


@pytest.mark.parametrize(
    ("experiment", "data"),
    [
        (epochs_disasters.EXPERIMENT, "medic"),
        (multisupcon_threshold.EXPERIMENT, "celeba_64"),
        (noise_figure.EXPERIMENT, "medic"),
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_systems_without_training_are_levels_across_the_panels(
    experiment: Experiment, data: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    where = setting(tmp_path)
    high = {Cell(data, "handcrafted"): [0.9], Cell(data, "untrained"): [0.25]}
    trained = all_trained(where, [*experiment.cells(where)], high)
    weights = {"shape": 1.0, "texture": 1.0, "colour": 1.0, "tilt": 1.0}
    experiment.finish(where, {cell: with_weights(each, weights) for cell, each in trained.items()})
    panels = drawn[-1].axes
    # Of the noise figure the panel of the held-out label, whose labels are right.
    panel = panels[1] if experiment.name == "noise_figure" else panels[0]
    levels = [{*np.asarray(line.get_ydata()).tolist()} for line in panel.lines]
    assert {90.0} in levels
    assert {25.0} in levels


def test_learning_rate_grows_with_the_root_of_the_batch(tmp_path: Path) -> None:
    small = setting(tmp_path, "small")
    tuned = small.tuning_of(batch_size_figure.cell(small, "medic", 256))
    assert tuned is not None
    assert tuned.first.train.batch_size == 256
    where = replace(small, budget=replace(small.budget, rates={}))
    spec = where.spec_of(batch_size_figure.cell(where, "medic", 256))
    usual = where.spec_of(Cell("medic", "mtcon"))
    assert (spec.train.batch_size, spec.train.lr) == (256, 2 * usual.train.lr)
    assert batch_size_figure.cell(where, "medic", usual.train.batch_size) == Cell("medic", "mtcon")


def test_thresholds_stand_beside_the_papers(tmp_path: Path) -> None:
    where, experiment = setting(tmp_path, "small"), multisupcon_threshold.EXPERIMENT
    outcome = experiment.finish(where, all_trained(where, [*experiment.cells(where)], {}))
    assert any("of the validation split and ours of the test split" in n for n in outcome.notes)
    paper = outcome.table.set_index("threshold")["the paper (%)"].dropna()
    assert paper.to_dict() == {"0.1": 65.1, "0.3": 71.1, "0.5": 73.9, "1": 68.3, "SimCLR": 66.8}
    assert outcome.table["difference (points)"].notna().sum() == len(paper)
    assert [verdict.paper for verdict in outcome.verdicts] == [
        "+1.70 points",
        "+8.80 points",
        "+5.60 points",
    ]


@pytest.mark.slow
def test_wrong_labels_lower_the_weight_and_the_ceiling(tmp_path: Path) -> None:
    where = setting(tmp_path, "small")
    outcome = noise_outcome(where, {})
    assert len(outcome.pictures) == 2
    shoes = outcome.table.query("data == 'UT Zappos50K' and weighting == 'learned weights'")
    rows = {row["wrong labels (%)"]: row for _, row in shoes.iterrows()}
    clean, half, wrong = rows[0], rows[60], rows[100]
    assert clean["weight, of all (%)"] == pytest.approx(100 / 3)
    assert wrong["weight, of all (%)"] == pytest.approx(100 * 0.5 / 2.5)
    # Half of the right labels are known. With all labels of five classes wrong, a fifth is met.
    assert clean["on wrong labels (%)"] == pytest.approx(50)
    assert half["on wrong labels (%)"] == pytest.approx(0.4 * 50 + 0.6 * 20)
    assert wrong["on wrong labels (%)"] == pytest.approx(20)
    assert wrong["on right labels (%)"] == pytest.approx(50)
    own = [verdict for verdict in outcome.verdicts if "calibrated" in verdict.claim]
    assert own == [v for v in outcome.verdicts if v.author == "this project"]
    answers = {verdict.claim: verdict.answer for verdict in outcome.verdicts}
    alike = "learned weights and equal weights within 2 points on wrong labels"
    assert answers[f"MEDIC, disaster_types (shape) wrong: {alike}"] == "holds"
    weight = "the weight of the task falls with learned weights"
    assert answers[f"UT Zappos50K, closure (texture) wrong: {weight}"] == "holds"
    accuracy = "the accuracy on wrong labels falls with equal weights"
    assert answers[f"MEDIC, disaster_types (shape) wrong: {accuracy}"] == "holds"


@pytest.mark.slow
def test_trends_need_the_same_seeds_everywhere(tmp_path: Path) -> None:
    """Values of different seeds must not be paired in order; other claims keep their verdict."""
    where, case = setting(tmp_path, "small"), noise_figure.CASES[0]
    cells = [case.cell(noise_figure.LEARNED, share) for share in noise_figure.shares(where)]
    # Three of four seeds are left of each, but not the same.
    failed = {cell: int(place == 0) for place, cell in enumerate(cells)}
    outcome = noise_outcome(where, dict.fromkeys(cells, [0.5] * 4), failed)
    found = [v.answer for v in outcome.verdicts if "falls with learned weights" in v.claim]
    assert found == ["not testable here", "not testable here", "holds", "holds"]


@pytest.mark.slow
def test_a_weighting_is_judged_by_what_the_held_out_label_loses(tmp_path: Path) -> None:
    """Learned weights lose nothing though they start lower; equal ones lose 20 points."""
    where, (case, _) = setting(tmp_path, "small"), noise_figure.CASES
    lost = {
        case.cell(noise_figure.EQUAL, 0.0): [0.8, 0.81, 0.8],
        case.cell(noise_figure.EQUAL, 1.0): [0.6, 0.61, 0.6],
        case.cell(noise_figure.LEARNED, 0.0): [0.5, 0.51, 0.5],
        case.cell(noise_figure.LEARNED, 1.0): [0.5, 0.51, 0.5],
    }
    outcome = noise_outcome(where, lost)
    found = {v.claim: v for v in outcome.verdicts if "brand (tilt), held out" in v.claim}
    learned, calibrated = found.values()
    assert learned.answer == "holds"
    assert learned.ours.startswith("+20.00 [")
    assert calibrated.answer == "holds"


def test_a_data_set_without_images_has_no_picture(tmp_path: Path) -> None:
    where = setting(tmp_path)
    cells = [*noise_figure.EXPERIMENT.cells(where)]
    failed: dict[Cell, list[float]] = {cell: [] for cell in cells if cell.data == "medic"}
    outcome = noise_outcome_of_failed(where, cells, failed)
    assert list(outcome.pictures) == ["Wrong labels of closure"]
    assert len(outcome.table) == len(cells)


def noise_outcome_of_failed(
    where: Setting, cells: Sequence[Cell], failed: Mapping[Cell, Sequence[float]]
) -> Outcome:
    trained = all_trained(where, cells, failed)
    weights = {"shape": 1.0, "texture": 1.0, "colour": 1.0}
    found = {c: with_weights(t, weights) if t.finished else t for c, t in trained.items()}
    return noise_figure.EXPERIMENT.finish(where, found)
