"""Tests of metric names, and of reading a label's score whatever its kind."""

import pytest

from mtcon_ray import metrics


@pytest.mark.parametrize(
    ("kind", "name"), [("classes", "accuracy"), ("set", "map"), ("number", "r2")]
)
def test_a_reading_finds_the_score_that_was_tracked(kind: str, name: str) -> None:
    values = {f"val/{name}/looks": 0.5, f"val/{name}_std/looks": 0.1, "val/accuracy": 0.9}
    assert metrics.score(kind, "val", "looks") in values
    assert metrics.score_std(kind, "val", "looks") in values
    assert metrics.reading(values, "val", "looks") == (0.5, 0.1)
    assert metrics.reading(values, "test", "looks") == (None, None)


@pytest.mark.parametrize(
    ("kinds", "name", "title"),
    [
        (["classes"], "val/accuracy", "accuracy"),
        (["classes", "classes"], "val/accuracy", "accuracy"),
        (["set", "set"], "val/score", "mAP"),
        (["number"], "val/score", "R²"),
        (["number", "classes"], "val/score", "mean of accuracy, R²"),
        (["set", "number", "classes"], "val/score", "mean of accuracy, mAP, R²"),
        ([], "val/rankme", "RankMe of the features, as a share of their width"),
    ],
)
def test_only_the_mean_of_accuracies_is_called_accuracy(
    kinds: list[str], name: str, title: str
) -> None:
    assert metrics.objective_name(iter(kinds)) == name
    assert metrics.objective_title(iter(kinds)) == title


def test_the_objective_is_found_under_both_names() -> None:
    assert metrics.objective({"val/score": 0.4, "val/accuracy/shape": 0.9}) == 0.4
    assert metrics.objective({"val/accuracy": 0.3, "val/map/looks": 0.9}) == 0.3
    assert metrics.objective({"val/rankme": 0.2, "loss": 1.0}) == 0.2
    assert metrics.objective({"loss": 1.0, "val/accuracy/shape": 0.9}) is None


@pytest.mark.parametrize(
    ("weights", "name", "title"),
    [
        (None, "val/score", "mean of accuracy, mAP"),
        ({"looks": 2.0}, "val/objective", "mAP of looks"),
        (
            {"looks": 3.0, "shape": 1.0},
            "val/objective",
            "weighted mean: 75% mAP of looks, 25% accuracy of shape",
        ),
    ],
)
def test_the_objective_of_a_spec_has_its_own_name(
    weights: dict[str, float] | None, name: str, title: str
) -> None:
    kinds: dict[str, metrics.Kind] = {"shape": "classes", "looks": "set"}
    labels = metrics.Labels(tuple(kinds), (), kinds, weights)
    assert (labels.objective, labels.objective_title) == (name, title)
    # It is preferred to the mean, which is tracked beside it.
    assert metrics.objective({"val/score": 0.4, "val/objective": 0.0}) == 0.0


def test_names_of_label_sets() -> None:
    assert metrics.average_precision("test", "looks") == "test/map_tie_aware/looks"
    assert metrics.f1("heldout", "micro", "looks") == "heldout/f1_micro/looks"
