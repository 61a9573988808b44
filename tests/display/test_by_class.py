"""Scores of each class and of each label of a set, from stored predictions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from mtcon_ray.display.by_class import parts
from mtcon_ray.evaluation.predictions import LabelPredictions, save_predictions
from mtcon_ray.records.results import SweepResults
from tests.display.built_page import built
from tests.display.conftest import MakeSweep
from tests.some import some

NAMES = ("boot", "heel", "<b>clog")
TRUTH, PREDICTED = [0, 0, 0, 0, 1, 1], [0, 0, 1, 2, 1, 1]


def predicted(
    results: SweepResults, truth: npt.ArrayLike = TRUTH, answers: npt.ArrayLike = PREDICTED,
    names: Sequence[str] = NAMES,
) -> SweepResults:  # fmt: skip
    """Stores the winner's predictions of the task kind, of all other labels none."""
    known, answered = np.array(truth), np.array(answers)
    path = results.predictions_of(some(results.winner))
    path.parent.mkdir(parents=True)
    found = LabelPredictions(np.arange(len(known)), known, answered, names)
    save_predictions(path, "abc", {("test", "kind"): found})
    return results


def test_each_class_has_its_recall_precision_and_most_frequent_error(sweep: MakeSweep) -> None:
    (part,) = parts(predicted(sweep(tasks=["kind"])))
    assert part.title == "kind, test"
    assert part.table.rows == [
        ["boot", "4", "0.500", "1.000", "heel (1 of 4)"],
        ["heel", "2", "1.000", "0.667", "—"],
    ]
    assert part.answers == [*NAMES]
    assert part.matrix == [("boot", [2, 1, 1]), ("heel", [0, 2, 0])]


@pytest.mark.parametrize(("count", "in_matrix"), [(15, 15), (20, 20), (21, 0)])
def test_only_the_worst_of_many_classes_show(sweep: MakeSweep, count: int, in_matrix: int) -> None:
    """Class i has `count` items, and i of them are right, all of class 0. Codes replace names."""
    truth = [code for code in range(count) for _ in range(count)]
    answers = [code if i < code else 0 for code in range(count) for i in range(count)]
    (part,) = parts(predicted(sweep(tasks=["kind"]), truth, answers, names=()))
    recalls = [row[2] for row in part.table.rows]
    assert recalls == sorted(recalls)
    assert part.table.rows[0][0] == "1"
    assert (len(recalls), len(part.matrix)) == (15, in_matrix)


def test_each_label_of_a_set_has_its_average_precision(sweep: MakeSweep) -> None:
    """Unknown items do not count: 255. The best label is ranked last."""
    bits = np.array([[1, 0], [0, 1], [0, 1], [1, 255]], np.uint8)
    scores = np.array([[4, 1], [3, 2], [2, 3], [1, 9]], np.float32)
    results = sweep(tasks=["kind"])
    plan = some(results.plan).model_copy(update={"kinds": {"kind": "set"}})
    (part,) = parts(predicted(replace(results, plan=plan), bits, scores, ("a", "b")))
    assert part.title == "kind (mAP), test"
    assert part.table.rows == [["a", "4", "2", "0.500", "0.750"], ["b", "3", "2", "0.667", "1.000"]]
    assert (part.answers, part.matrix) == ((), ())


def test_nothing_is_said_without_classes_or_predictions(sweep: MakeSweep) -> None:
    assert [*parts(sweep(tasks=["kind"])), *parts(sweep(points=()))] == []


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_a_table_and_a_matrix_per_label(sweep: MakeSweep) -> None:
    results = sweep(tasks=["kind"])
    assert "by class" not in built(results).text
    page = built(predicted(results))
    assert "boot 4 0.500 1.000 heel (1 of 4)" in page.text
    assert "class boot heel <b>clog boot 50 25 25 heel 100" in page.text
    assert '<td style="--share: 25.0%" title="boot as &lt;b&gt;clog: 1 of 4">25</td>' in page.source
    assert "b" not in page.tags
