"""Tests of probing classes and label sets together on the same images."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.evaluation.logistic import train_probes
from mtcon_ray.evaluation.probe_data import rows_with_any
from mtcon_ray.evaluation.scores import best_thresholds, f1_scores
from mtcon_ray.models.network import Network
from tests.evaluation import conftest


def of_every_kind(dataset: Dataset) -> Dataset:
    """Returns the data set with a label set that its images show, partly unknown.

    Its held-out classes have a task's name with another first letter.
    """
    draw, table, n = np.random.default_rng(1), dataset.table, conftest.NUM_ITEMS
    level = table.labels["Heel height"]
    bits = np.stack([level > 0, level > 1, draw.random(n) < 0.5], axis=1).astype(np.uint8)
    bits[draw.random(bits.shape) < 0.1] = 255
    bits[:5] = 255
    table = replace(table, multi_hot={"Looks": bits}, multi_hot_names={"Looks": ("a", "b", "c")})
    table.labels["Colour"], table.classes["Colour"] = table.labels["brand"], table.classes["brand"]
    return replace(dataset, table=table, tasks=("colour", "Looks"), held_out=("Colour",))


def test_every_kind_is_measured_by_its_own_score(network: Network, dataset: Dataset) -> None:
    mixed = of_every_kind(dataset)
    assert set(conftest.run_validate(network, mixed)) == {
        "val/score",
        *(f"val/{score}/colour" for score in ("accuracy", "accuracy_std")),
        *(f"val/{score}/looks" for score in ("map", "map_std")),
    }
    scores = ("map", "map_std", "f1_micro", "f1_macro", "f1_sample")
    nearest = ("recall_at_1", "recall_at_5", "recall_at_10", "map_at_r", "r_precision")
    of_classes = ("accuracy", "accuracy_std", "knn", *nearest)
    values = conftest.run_report(network, mixed)
    assert set(values) == {
        *(f"test/{score}/colour" for score in of_classes),
        *(f"head/{score}/colour" for score in nearest),
        *(f"test/{score}/looks" for score in scores),
        "train/map/looks",
        *(f"heldout/{score}/colour-2" for score in of_classes),
        *(f"probe/{value}" for value in ("features", "gradient")),
    }
    assert all(0 < values[f"test/{score}/looks"] < 1 for score in scores)
    assert values["test/map/looks"] < values["train/map/looks"] < 1


@pytest.mark.parametrize("augment", [False, True])
def test_f1_thresholds_are_chosen_on_val(network: Network, dataset: Dataset, augment: bool) -> None:
    mixed, recipe = of_every_kind(dataset), conftest.SGD.model_copy(update={"augment": augment})
    evaluation, views = conftest.evaluation(network, mixed), torch.Generator().manual_seed(7)
    rows = [rows_with_any(mixed.table, split, ("Looks",)) for split in ("train", "val", "test")]
    train, val, test = (evaluation.read(of_split, ["Looks"]) for of_split in rows)
    more = [evaluation.read(rows[0], ["Looks"], views) for _ in range(recipe.epochs)]
    assert not torch.allclose(more[0].features, train.features)
    seen = more if augment else [train] * recipe.epochs
    probe = train_probes(seen, {}, recipe, seed=7, val=val)["Looks"]
    thresholds = best_thresholds(probe.scores(val.features), val.labels["Looks"])
    expected = f1_scores(probe.scores(test.features), test.labels["Looks"], thresholds)
    by_sgd = conftest.SPEC.model_copy(update={"probe": recipe})
    values = conftest.run_report(network, replace(mixed, tasks=("Looks",), held_out=()), by_sgd)
    for mean, value in expected.items():
        assert values[f"test/f1_{mean}/looks"] == pytest.approx(value)
