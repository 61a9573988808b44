"""Figures of curves: noise, temperature, epochs, batch size, threshold."""

from pathlib import Path

import pytest

from experiments import batch_size_figure, epochs_disasters, epochs_figure, noise_figure
from experiments.reproduction.experiment import Experiment
from tests.experiments.pretended import all_trained, setting, trained
from tests.recorded import plan_with


@pytest.mark.parametrize(("change", "answer"), [(0.05, "holds"), (-0.05, "does not hold")])
@pytest.mark.parametrize(
    "experiment", [epochs_figure.EXPERIMENT, batch_size_figure.EXPERIMENT], ids=lambda e: e.name
)
def test_longer_training_and_larger_batches_are_judged_by_their_trend(
    experiment: Experiment, change: float, answer: str, tmp_path: Path
) -> None:
    where = setting(tmp_path, "small")
    cells = [*experiment.cells(where)]
    rising = {c: [0.5 + change * i + s / 100 for s in range(3)] for i, c in enumerate(cells)}
    outcome = experiment.finish(where, all_trained(where, cells, rising))
    assert [verdict.answer for verdict in outcome.verdicts] == [answer, answer]
    first = outcome.table.iloc[0]
    assert first["mean of all tasks (%)"] == pytest.approx(51)
    label = "closure" if "closure (%)" in first else "informative"
    assert first[f"{label} (%), low"] < 51 < first[f"{label} (%), high"]


def test_products_have_half_the_epochs_of_shoes(tmp_path: Path) -> None:
    where = setting(tmp_path, "small")
    found = [
        [where.spec_of(cell).train.epochs for cell in made.cells(where) if cell.key == "mtcon"]
        for made in (epochs_disasters.EXPERIMENT, epochs_figure.EXPERIMENT)
    ]
    assert found == [[3, 6, 12, 24], [3, 6, 12, 24, 48]]


@pytest.mark.slow
def test_wrong_labels_lower_the_weight_and_the_ceiling(tmp_path: Path) -> None:
    """The weight of the task with wrong labels is 1 - share / 2. A label has five classes.

    With equal weights the shoes are hardly better, the disasters by half of 8 points on average.
    """
    where, experiment, found = setting(tmp_path, "small"), noise_figure.EXPERIMENT, {}
    for cell in experiment.cells(where):
        data, accuracies = where.spec_of(cell).data, [0.5] * 3
        weights = dict.fromkeys(data.tasks, 1.0)
        if cell.key == "mtcon-equal":
            accuracies = [0.58, 0.58, 0.585] if cell.data == "medic" else [0.505, 0.51, 0.505]
        else:
            weights |= {wrong: 1 - share / 2 for wrong, share in data.label_noise.items()}
        plan = plan_with(classes=dict.fromkeys((*data.tasks, "tilt"), 5))
        found[cell] = trained(where, cell, accuracies, plan=plan, weights=weights)
    outcome = experiment.finish(where, found)
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
    answers = {verdict.claim: verdict.answer for verdict in outcome.verdicts}
    of_shoes, disasters = "UT Zappos50K, closure (texture)", "MEDIC, disaster_types (shape)"
    alike = "within 2 points on wrong labels, mean of the shares between 0 and 1"
    assert {
        f"{of_shoes} wrong: learned weights and equal weights {alike}": "holds",
        f"{disasters} wrong: learned weights and equal weights {alike}": "does not hold",
        f"{of_shoes} wrong: the weight of the task falls with learned weights": "holds",
        f"{of_shoes} wrong: brand (tilt), held out, loses less with learned weights than with "
        "equal weights": "not comparable",
        f"{disasters} wrong: the accuracy on wrong labels falls with equal weights": "holds",
    }.items() <= answers.items()
