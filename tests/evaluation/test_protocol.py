"""Tests of the evaluation protocol: items that are read, and scores against a reference."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mtcon_ray.base import metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.logistic import fit
from mtcon_ray.evaluation.neighbours import neighbours_correct, retrieval
from mtcon_ray.evaluation.scores import score_std
from mtcon_ray.models.network import Network
from mtcon_ray.spec.evaluate import CONVERGED
from tests.evaluation import conftest


def with_labels(dataset: Dataset, label: str, rows: Any, value: Any) -> Dataset:
    values = dataset.table.labels[label].copy()
    values[rows] = value
    table = replace(dataset.table, labels={**dataset.table.labels, label: values})
    return replace(dataset, table=table)


def with_images(dataset: Dataset, rows: Any) -> Dataset:
    """Returns the data set with black images at these rows."""
    pixels = np.array(dataset.images)
    pixels[rows] = 0
    return replace(dataset, images=pixels)


def test_validate_gives_the_mean_of_the_short_probe(network: Network, dataset: Dataset) -> None:
    values = conftest.run_validate(network, dataset)
    train, val = (conftest.features_of(network, dataset, split) for split in ("train", "val"))
    found = fit(train, conftest.NUM_CLASSES, [0.03])
    accuracies = []
    for task, slug in zip(conftest.TASKS, ("heel-height", "colour"), strict=True):
        both = found.probes[task].predicted(val), val.labels[task]
        accuracies.append((both[0] == both[1]).double().mean().item())
        assert values.pop(f"val/accuracy/{slug}") == accuracies[-1]
        assert values.pop(f"val/accuracy_std/{slug}") == score_std("classes", *both, 200, 7)
    assert values == {"val/accuracy": pytest.approx(sum(accuracies) / 2, rel=1e-12)}
    assert accuracies[0] != accuracies[1]


def test_an_objective_is_added_to_the_mean(
    network: Network, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for unneeded in ("retrieval", "neighbours_correct"):
        monkeypatch.delattr(f"mtcon_ray.evaluation.protocol.{unneeded}")
    plain = conftest.run_validate(network, dataset)
    heel, colour = (plain[f"val/accuracy/{slug}"] for slug in ("heel-height", "colour"))

    def objective(weights: dict[str, float]) -> float:
        values = conftest.run_validate(network, dataset, weights=weights)
        found = values.pop("val/objective")
        assert values == plain
        return found

    assert objective({"colour": 2.0}) == colour
    both = objective({"colour": 1.0, "Heel height": 3.0})
    assert both == pytest.approx(0.75 * heel + 0.25 * colour, rel=1e-12)
    assert both != pytest.approx(plain["val/accuracy"])


def test_metrics_of_an_objective_equal_the_test_evaluation_on_the_same_items(
    network: Network, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is measured only if the objective names it."""
    plain = conftest.run_validate(network, dataset)
    swapped = np.array([0, 2, 1, -1], dtype=np.int8)[dataset.table.split]  # val and test
    table = replace(dataset.table, split=swapped)
    expected = conftest.run_report(network, replace(dataset, table=table))
    names = [f"{m}/{slug}" for m in metrics.OF_CLASSES for slug in ("heel-height", "colour")]
    values = [expected[n if n.startswith("head") else f"test/{n}"] for n in names]
    found = conftest.run_validate(network, dataset, weights=dict.fromkeys(metrics.OF_CLASSES, 1.0))
    assert found.pop("val/objective") == pytest.approx(sum(values) / len(values))
    assert found == {**plain, **{f"val/{n}": v for n, v in zip(names, values, strict=True)}}
    assert len(set(values)) > len(values) / 2
    monkeypatch.delattr("mtcon_ray.evaluation.protocol.neighbours_correct")
    found = conftest.run_validate(network, dataset, weights={"head/map_at_r/colour": 1.0})
    value = expected["head/map_at_r/colour"]
    assert found == {**plain, "val/head/map_at_r/colour": value, "val/objective": value}


def test_validate_reads_train_and_val_and_tasks_only(network: Network, dataset: Dataset) -> None:
    values = conftest.run_validate(network, dataset)
    assert isinstance(dataset.images, conftest.RecordedImages)
    table = dataset.table
    assert sorted(dataset.images.read) == sorted([*table.rows("train"), *table.rows("val")])
    unseen = np.flatnonzero(~np.isin(table.split, (0, 1)))
    changed = with_images(dataset, unseen)
    for task in conftest.TASKS:
        changed = with_labels(changed, task, unseen, 0)
    changed = with_labels(changed, "brand", slice(None), -1)
    assert conftest.run_validate(network, changed) == values
    for split in ("train", "val"):
        assert conftest.run_validate(network, with_images(dataset, table.rows(split))) != values
        other = with_labels(dataset, "colour", table.rows(split), 0)
        assert conftest.run_validate(network, other) != values


def test_validate_reads_the_same_max_items_of_a_split(network: Network, dataset: Dataset) -> None:
    """At most so many of each split, and always the same."""
    short: dict[str, Any] = {"short_probe": {"max_items": 20}}
    assert isinstance(dataset.images, conftest.RecordedImages)
    first = conftest.run_validate(network, dataset, **short)
    read = list(dataset.images.read)
    assert [int((dataset.table.split[read] == code).sum()) for code in (0, 1, 2)] == [20, 20, 0]
    assert conftest.run_validate(network, dataset, **short) == first
    assert dataset.images.read == read + read
    conftest.run_validate(network, dataset, seed=8, **short)
    assert set(dataset.images.read[80:]) != set(read)


def test_report_gives_the_full_protocol(network: Network, dataset: Dataset) -> None:
    values = conftest.run_report(network, dataset)
    train, val, test = (conftest.features_of(network, dataset, s) for s in ("train", "val", "test"))
    found = fit(train, conftest.NUM_CLASSES, (1e-1, 1e-2, 1e-3, 1e-4, 1e-5), val=val)
    assert len({probe.made for probe in found.probes.values()}) > 1, "or no penalty is chosen"
    for label, num_classes in conftest.NUM_CLASSES.items():
        split, slug = "test" if label in conftest.TASKS else "heldout", metrics.slug(label)
        known = test.known(label)
        both = found.probes[label].predicted(known), known.labels[label]
        assert values.pop(f"{split}/accuracy/{slug}") == (both[0] == both[1]).double().mean().item()
        assert values.pop(f"{split}/accuracy_std/{slug}") == score_std("classes", *both, 200, 7)
        near = neighbours_correct(label, train, test, num_classes, k=7)
        assert values.pop(f"{split}/knn/{slug}") == near.double().mean().item()
        spaces = {split: test.features}
        if label in conftest.TASKS:
            spaces["head"] = conftest.features_of(network, dataset, "test", label).features
        for space, z_ND in spaces.items():
            for name, score_N in retrieval(z_ND, {label: test.labels[label]})[label].items():
                mean = score_N.nanmean().item()
                assert values.pop(f"{space}/{name}/{slug}") == pytest.approx(mean, abs=1e-9)
    assert found.gradient is not None
    assert values.pop("probe/gradient") == found.gradient <= CONVERGED
    assert values.pop("probe/features") == train.features.shape[1]
    assert values == {}


def test_classes_behind_the_others_in_test_are_errors(network: Network, dataset: Dataset) -> None:
    """Such items are never correct, even though another label has more classes."""
    before = conftest.run_report(network, dataset)
    test = dataset.table.rows("test")
    changed = with_labels(dataset, "colour", test[::2], 2)
    changed = with_labels(changed, "colour", test[1::4], 3)
    changed = with_labels(changed, "brand", test, 4)
    after = conftest.run_report(network, changed)
    assert 0 < after["test/accuracy/colour"] <= len(test[3::4]) / len(test)
    assert after["heldout/accuracy/brand"] == 0
    assert after["test/accuracy/heel-height"] == before["test/accuracy/heel-height"]


def test_a_label_that_the_short_probe_lacks_is_named(network: Network, dataset: Dataset) -> None:
    no_val = with_labels(dataset, "colour", dataset.table.rows("val"), -1)
    message = r"label 'colour' is unknown for all 30 .* split 'val' .*; raise evaluate\.short"
    with pytest.raises(DataError, match=message):
        conftest.run_validate(network, no_val)
    val = dataset.table.rows("val")
    no_pair = with_labels(with_labels(dataset, "colour", val, -1), "colour", val[:2], [0, 1])
    assert "val/knn/colour" in conftest.run_validate(network, no_pair, weights={"knn/colour": 1})
    with pytest.raises(DataError, match=r"objective map_at_r/colour needs .* the 30 validation"):
        conftest.run_validate(network, no_pair, weights={"map_at_r": 1})
