"""Test scores with stored predictions: intervals over seeds, and the lead over the runner-up."""

import re

import numpy as np
import pytest

from mtcon_ray.display import page
from mtcon_ray.evaluation.predictions import LabelPredictions, Predictions, save_predictions
from mtcon_ray.records.results import SweepResults
from tests.display.conftest import MakeSweep

POINTS = ({"method.temperature": 0.1}, {"method.temperature": 0.5})
LEAD = r"\+0\.200 \[\+0\.1\d\d, \+0\.2\d\d\]"
MEAN = r"0\.600 \[0\.5\d\d, 0\.6\d\d\]"


def with_predictions(results: SweepResults) -> SweepResults:
    """Stores predictions of brand:

    600 of 1,000 items right for the winner's trials, 400 for the others.
    """
    assert results.winner is not None
    rows, truth = np.arange(1000), np.zeros(1000, dtype=np.int64)
    for trial in results.trials:
        share = 600 if trial.params == results.winner.params else 400
        random = np.random.default_rng(trial.number)
        wrong = random.permutation(1000) >= share
        labels = {("heldout", "brand"): LabelPredictions(rows, truth, wrong.astype(np.int64))}
        path = results.predictions_of(trial)
        path.parent.mkdir(parents=True)
        save_predictions(path, Predictions("abc", labels))
    return results


@pytest.mark.parametrize(("repeats", "mark"), [(1, "¹"), (3, "")])
def test_intervals_are_of_labels_whose_predictions_are_stored(
    sweep: MakeSweep, repeats: int, mark: str
) -> None:
    results = with_predictions(sweep(points=POINTS, repeats=repeats))
    category, *_, brand = page.accuracies(results).rows
    assert re.fullmatch(LEAD + mark, brand[-1])
    assert category[-1] == "—"
    if repeats > 1:
        assert re.fullmatch(MEAN, brand[-2])
        assert category[-2] == "—"
    results.predictions_of(results.trials[-1]).unlink()
    assert "lead over the runner-up" not in page.accuracies(results).header
