"""Tests of metric names, and of reading a label's score whatever its kind."""

import shutil
from pathlib import Path

import pytest

from mtcon_ray.base import metrics

OWN = "val/objective"


@pytest.mark.parametrize(("kind", "name"), [("classes", "accuracy"), ("set", "map")])
def test_a_reading_finds_the_score_that_was_tracked(kind: str, name: str) -> None:
    values = {f"val/{name}/looks": 0.5, f"val/{name}_std/looks": 0.1, "val/accuracy": 0.9}
    assert metrics.score(kind, "val", "looks") in values
    assert metrics.score_std(kind, "val", "looks") in values
    assert metrics.reading(values, "val", "looks") == (0.5, 0.1)
    assert metrics.reading(values, "test", "looks") == (None, None)


KINDS: dict[str, metrics.Kind] = {"shape": "classes", "looks": "set", "knn": "classes"}


OBJECTIVES = [
    ("shape", {}, "val/accuracy", "accuracy"),
    ("looks", {}, "val/score", "mAP"),
    ("looks shape", {}, "val/score", "mean of accuracy, mAP"),
    ("", {}, "val/rankme", "RankMe of the features, as a share of their width"),
    ("shape looks", {"looks": 2.0}, OWN, "looks"),
    ("shape looks", {"looks": 3, "shape": 1}, OWN, "weighted mean: 75% looks, 25% shape"),
    ("shape looks", {"knn": 1.0}, OWN, "knn"),
    ("shape looks", {"score": 1.0}, OWN, "score"),
    ("shape", {"head/map_at_r/shape": 1.0}, OWN, "head/map_at_r/shape"),
    ("knn", {"knn": 1.0}, OWN, "knn"),
    ("shape knn", {"score": 1, "knn/knn": 1}, OWN, "weighted mean: 50% score, 50% knn/knn"),
]


@pytest.mark.parametrize(("tasks", "weights", "name", "title"), OBJECTIVES)
def test_name_of_an_objective(tasks: str, weights: dict[str, float], name: str, title: str) -> None:
    """Only a mean of accuracies is called accuracy. A task's name precedes a metric's."""
    labels = metrics.Labels(tuple(tasks.split()), (), KINDS, weights)
    assert (labels.objective, labels.objective_title) == (name, title)


COLUMNS = [
    ("Heel height (cm)", "heel-height-cm"),  # names of results that are published
    ("a_b,a b,2", "a_b,a-b,2"),
    ("形状,颜色,форма,شكل,große", "形状,颜色,форма,شكل,große"),
    ("caf\u00e9,cafe\u0301", "café,café-2"),
    ("+,?,A+,A-,a,a-2", "label,label-2,a,a-2,a-3,a-2-2"),
]


@pytest.mark.parametrize(("columns", "names"), COLUMNS)
def test_names_of_columns_are_different(columns: str, names: str) -> None:
    found = metrics.slugs(columns.split(","))
    assert found == dict(zip(columns.split(","), names.split(","), strict=True))
    # Of tasks alone and of tasks and held-out labels.
    assert metrics.slugs(columns.split(",")[:1]).items() <= found.items()


@pytest.mark.mlflow
def test_mlflow_takes_each_name_of_a_label(tmp_path: Path, empty_database: Path) -> None:
    """Long names are shortened to names that differ."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    question = "How much do you agree " * 12
    columns = [question, f"{question}?", "形" * 300, "k" * 229, "रंग", "A+", "a/b: c.d", "²½", "🙂"]
    labels = metrics.Labels(tuple(columns), (), dict.fromkeys(columns, "set"))
    names = []
    for slug in labels.slugs.values():
        scores = [metrics.score, metrics.score_std]
        names += [score(kind, "heldout", slug) for score in scores for kind in metrics.SCORES]
        names += [metrics.retrieval("heldout", score, slug) for score in ("f1_sample", "knn")]
        names += [metrics.weight(slug), metrics.cosine("positive", slug)]
    assert len(set(names)) == len(columns) * 8
    client = MlflowClient(f"sqlite:///{shutil.copy(empty_database, tmp_path)}")
    run = client.create_run("0").info.run_id
    client.log_batch(run, [Metric(name, 1.0, 0, 0) for name in names])
    assert client.get_run(run).data.metrics.keys() == set(names)


def test_the_objective_is_found_under_each_name() -> None:
    assert metrics.objective({"val/score": 0.4, "val/accuracy/shape": 0.9}) == 0.4
    assert metrics.objective({"val/accuracy": 0.3, "val/map/looks": 0.9}) == 0.3
    assert metrics.objective({"val/rankme": 0.2, "loss": 1.0}) == 0.2
    assert metrics.objective({"loss": 1.0, "val/accuracy/shape": 0.9}) is None
    assert metrics.objective({"val/score": 0.4, OWN: 0.0}) == 0.0, "not the mean"
