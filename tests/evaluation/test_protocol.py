"""Who is read when, and that the numbers are those of the stated protocol."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sources import LabelTable
from mtcon_ray.data.views import ViewsSpec
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.bootstrap import bootstrap_std
from mtcon_ray.evaluation.f_score import best_thresholds, f1_scores
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.evaluation.multilabel import train_set_probe
from mtcon_ray.evaluation.probe import LabelledFeatures, train_probes
from mtcon_ray.evaluation.protocol import check_labels, report, validate
from mtcon_ray.evaluation.reading import Reader
from mtcon_ray.evaluation.spec import EvaluateSpec, ProbeSpec, ShortProbeSpec
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import Network, build_network, projections
from mtcon_ray.models.spec import ModelSpec

VIEWS = ViewsSpec(size=16)
CPU = torch.device("cpu")
TASKS = ("Heel height", "colour")
NUM_CLASSES = {"Heel height": 3, "colour": 2, "brand": 4}
SPEC = EvaluateSpec(
    short_probe=ShortProbeSpec(epochs=3, batch_size=8, lr=0.05),
    probe=ProbeSpec(epochs=5, batch_size=8, momentum=0.8),
    bootstrap=200,
    batch_size=32,
)
NUM_ITEMS = 150


class RecordedImages(np.ndarray[Any, Any]):
    """Images that remember which rows were read."""

    read: list[int]

    def __getitem__(self, rows: Any) -> Any:
        self.read.extend(rows.tolist())
        return np.asarray(self)[rows]


@pytest.fixture
def network() -> Network:
    return build_network(
        ModelSpec(encoder=Small.Spec(width=4)), projections(TASKS, dim=8, hidden=None), seed=0
    )


@pytest.fixture
def dataset() -> Dataset:
    """90 items to train on, 30 to validate, 27 to test, 3 left out; labels show in the colour."""
    draw = np.random.default_rng(0)
    labels = {label: draw.integers(0, size, NUM_ITEMS) for label, size in NUM_CLASSES.items()}
    level = [labels[label] * 150 // size for label, size in NUM_CLASSES.items()]
    noise = draw.integers(0, 100, (NUM_ITEMS, 20, 20, 3))
    pixels = (np.stack(level, axis=1)[:, None, None] + noise).astype(np.uint8)
    split = draw.permutation(np.repeat([0, 1, 2, -1], [90, 30, 27, 3])).astype(np.int8)
    labels["brand"][draw.random(NUM_ITEMS) < 0.4] = -1
    classes = {k: tuple("abcd"[:n]) for k, n in NUM_CLASSES.items()}
    table = LabelTable(tuple(map(str, range(NUM_ITEMS))), labels, classes, split)
    images = pixels.view(RecordedImages)
    images.read = []
    return Dataset(images, table, TASKS, ("brand",), "0")


def with_labels(dataset: Dataset, label: str, rows: Any, value: int) -> Dataset:
    values = dataset.table.labels[label].copy()
    values[rows] = value
    table = replace(dataset.table, labels={**dataset.table.labels, label: values})
    return replace(dataset, table=table)


def with_images(dataset: Dataset, rows: Any) -> Dataset:
    """Black images at these rows."""
    pixels = np.array(dataset.images)
    pixels[rows] = 0
    return replace(dataset, images=pixels)


def run_validate(network: Network, dataset: Dataset, **changes: Any) -> dict[str, float]:
    spec = EvaluateSpec.model_validate({**SPEC.model_dump(), **changes})
    return validate(network, dataset, spec, VIEWS, device=CPU, seed=7)


def run_report(network: Network, dataset: Dataset) -> dict[str, float]:
    return report(network, dataset, SPEC, VIEWS, device=CPU, seed=7)


def features_of(network: Network, dataset: Dataset, split: Any) -> LabelledFeatures:
    rows = dataset.table.rows(split)
    features = extract_features(network, dataset.images, rows, VIEWS, batch_size=32, device=CPU)
    labels = {k: torch.from_numpy(v[rows]) for k, v in dataset.table.labels.items()}
    return LabelledFeatures(features, labels)


def test_validate_gives_the_mean_of_the_short_probe(network: Network, dataset: Dataset) -> None:
    values = run_validate(network, dataset)
    train, val = (features_of(network, dataset, split) for split in ("train", "val"))
    recipe = ProbeSpec(epochs=3, batch_size=8, lr=0.05, momentum=0.8)
    probes = train_probes(train, NUM_CLASSES, recipe, seed=7)
    accuracies = []
    for task, slug in zip(TASKS, ("heel-height", "colour"), strict=True):
        correct = probes[task].correct(val)
        accuracies.append(correct.double().mean().item())
        assert values.pop(f"val/accuracy/{slug}") == accuracies[-1]
        assert values.pop(f"val/accuracy_std/{slug}") == bootstrap_std(correct, 200, seed=7)
    assert values == {"val/accuracy": pytest.approx(sum(accuracies) / 2, rel=1e-12)}
    assert accuracies[0] != accuracies[1]


def test_validate_reads_train_and_val_and_the_tasks_only(
    network: Network, dataset: Dataset
) -> None:
    values = run_validate(network, dataset)
    assert isinstance(dataset.images, RecordedImages)
    table = dataset.table
    assert sorted(dataset.images.read) == sorted([*table.rows("train"), *table.rows("val")])
    unseen = np.flatnonzero(~np.isin(table.split, (0, 1)))
    changed = with_images(dataset, unseen)
    for task in TASKS:
        changed = with_labels(changed, task, unseen, 0)
    changed = with_labels(changed, "brand", slice(None), -1)
    assert run_validate(network, changed) == values
    for split in ("train", "val"):
        assert run_validate(network, with_images(dataset, table.rows(split))) != values
        assert run_validate(network, with_labels(dataset, "colour", table.rows(split), 0)) != values


def test_validate_reads_at_most_max_items_of_each_split_always_the_same(
    network: Network, dataset: Dataset
) -> None:
    short = {"short_probe": {"epochs": 3, "max_items": 20}}
    assert isinstance(dataset.images, RecordedImages)
    first = run_validate(network, dataset, **short)
    read = list(dataset.images.read)
    assert [int((dataset.table.split[read] == code).sum()) for code in (0, 1, 2)] == [20, 20, 0]
    assert run_validate(network, dataset, **short) == first
    assert dataset.images.read == read + read
    spec = EvaluateSpec.model_validate({**SPEC.model_dump(), **short})
    validate(network, dataset, spec, VIEWS, device=CPU, seed=8)
    assert set(dataset.images.read[80:]) != set(read)


def test_report_gives_the_full_protocol(network: Network, dataset: Dataset) -> None:
    values = run_report(network, dataset)
    train, val, test = (features_of(network, dataset, s) for s in ("train", "val", "test"))
    probes = train_probes(train, NUM_CLASSES, SPEC.probe, seed=7, val=val)
    assert {probe.epoch for probe in probes.values()} != {SPEC.probe.epochs}
    for label, name in (
        ("Heel height", "test/accuracy{}/heel-height"),
        ("colour", "test/accuracy{}/colour"),
        ("brand", "heldout/accuracy{}/brand"),
    ):
        correct = probes[label].correct(test.known(label))
        assert values.pop(name.format("")) == correct.double().mean().item()
        assert values.pop(name.format("_std")) == bootstrap_std(correct, 200, seed=7)
    assert values == {}


def test_classes_behind_the_others_in_test_are_errors(network: Network, dataset: Dataset) -> None:
    """Though another label has so many classes that a probe might have a place for them."""
    before = run_report(network, dataset)
    test = dataset.table.rows("test")
    changed = with_labels(dataset, "colour", test[::2], 2)
    changed = with_labels(changed, "colour", test[1::4], 3)
    changed = with_labels(changed, "brand", test, 4)
    after = run_report(network, changed)
    assert 0 < after["test/accuracy/colour"] <= len(test[3::4]) / len(test)
    assert after["heldout/accuracy/brand"] == 0
    assert after["test/accuracy/heel-height"] == before["test/accuracy/heel-height"]


def test_report_reads_each_image_once(network: Network, dataset: Dataset) -> None:
    run_report(network, dataset)
    assert isinstance(dataset.images, RecordedImages)
    assert sorted(dataset.images.read) == np.flatnonzero(dataset.table.split >= 0).tolist()


def test_images_without_any_label_are_not_read(network: Network, dataset: Dataset) -> None:
    for label in NUM_CLASSES:
        dataset = with_labels(dataset, label, [0, 1, 2], -1)
    assert isinstance(dataset.images, RecordedImages)
    run_validate(network, dataset)
    run_report(network, dataset)
    assert not {0, 1, 2} & set(dataset.images.read)


def test_the_network_is_left_as_it_was(network: Network, dataset: Dataset) -> None:
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    run_validate(network, dataset)
    run_report(network, dataset)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_label_that_a_split_lacks_is_named(network: Network, dataset: Dataset) -> None:
    no_val = with_labels(dataset, "colour", dataset.table.rows("val"), -1)
    message = r"label 'colour' must be known .* split 'val', got none of 30; raise evaluate\.short"
    with pytest.raises(DataError, match=message):
        run_validate(network, no_val)
    no_test = with_labels(dataset, "brand", dataset.table.rows("test"), -1)
    run_validate(network, no_test)
    with pytest.raises(DataError, match=r"label 'brand' must be known .* split 'test', got none"):
        run_report(network, no_test)


def test_labels_are_checked_without_images(dataset: Dataset) -> None:
    check_labels(dataset.table, TASKS, ("brand",), SPEC, seed=7)
    for label, split in (("colour", "train"), ("Heel height", "val"), ("brand", "test")):
        rows = np.flatnonzero(dataset.table.split == ("train", "val", "test").index(split))
        table = with_labels(dataset, label, rows, -1).table
        with pytest.raises(DataError, match=f"label '{label}' must be known .* split '{split}'"):
            check_labels(table, TASKS, ("brand",), SPEC, seed=7)


def test_a_sparse_label_outside_the_short_probes_items_is_named(dataset: Dataset) -> None:
    train = dataset.table.rows("train")
    table = with_labels(dataset, "colour", train[1:], -1).table
    spec = EvaluateSpec(short_probe=ShortProbeSpec(max_items=2))
    with pytest.raises(DataError, match=r"'colour' .* none of 2; raise evaluate.short_probe.max_"):
        check_labels(table, TASKS, (), spec, seed=0)


def of_every_kind(dataset: Dataset) -> Dataset:
    """The same pictures with a set and a number that show in the colour, partly unknown."""
    draw, table = np.random.default_rng(1), dataset.table
    level = table.labels["Heel height"]
    bits = np.stack([level > 0, level > 1, draw.random(NUM_ITEMS) < 0.5], axis=1).astype(np.uint8)
    bits[draw.random(bits.shape) < 0.1] = 255
    bits[:5] = 255
    price = 50 + 10 * level + draw.normal(size=NUM_ITEMS)
    price[draw.random(NUM_ITEMS) < 0.1] = np.nan
    table = replace(
        table,
        multi_hot={"Looks": bits},
        multi_hot_names={"Looks": ("a", "b", "c")},
        continuous={"price": price},
    )
    return replace(dataset, table=table, tasks=("colour", "Looks"), held_out=("price", "brand"))


def test_every_kind_is_measured_by_its_own_score(network: Network, dataset: Dataset) -> None:
    mixed = of_every_kind(dataset)
    assert set(run_validate(network, mixed)) == {
        "val/score",
        *(f"val/{score}/colour" for score in ("accuracy", "accuracy_std")),
        *(f"val/{score}/looks" for score in ("map", "map_std")),
    }
    scores = ("map", "map_std", "map_tie_aware", "f1_micro", "f1_macro", "f1_sample")
    values = run_report(network, mixed)
    assert set(values) == {
        *(f"test/{score}/colour" for score in ("accuracy", "accuracy_std")),
        *(f"test/{score}/looks" for score in scores),
        *(f"heldout/{score}/price" for score in ("r2", "r2_std")),
        *(f"heldout/{score}/brand" for score in ("accuracy", "accuracy_std")),
    }
    assert all(0 < values[f"test/{score}/looks"] < 1 for score in scores)
    assert values["heldout/r2/price"] > 0.2
    plain = run_report(network, replace(mixed, tasks=("colour",), held_out=("brand",)))
    assert plain.items() <= values.items()


def test_the_objective_is_the_mean_of_scores_none_below_zero(
    network: Network, dataset: Dataset
) -> None:
    mixed = replace(of_every_kind(dataset), tasks=("colour", "Looks", "price"))
    values = run_validate(network, mixed)
    scores = [values[name] for name in ("val/accuracy/colour", "val/map/looks", "val/r2/price")]
    assert values["val/score"] == pytest.approx(sum(scores) / 3)
    assert scores[2] > 0
    noise = np.random.default_rng(2).normal(size=NUM_ITEMS)
    hopeless = replace(mixed, table=replace(mixed.table, continuous={"price": noise}))
    values = run_validate(network, hopeless, numbers={"penalties": [1e-9]})
    assert values["val/r2/price"] < 0
    assert values["val/score"] == pytest.approx(sum(scores[:2]) / 3)
    assert "val/accuracy" not in values


def test_thresholds_of_f1_are_chosen_on_val(network: Network, dataset: Dataset) -> None:
    mixed = of_every_kind(dataset)
    train, val, test = (
        Reader(network, mixed, 32, VIEWS, CPU, None).read(mixed.table.rows(split), ["Looks"])
        for split in ("train", "val", "test")
    )
    probe = train_set_probe("Looks", train, SPEC.probe, SPEC.label_sets, seed=7, val=val)
    thresholds = best_thresholds(probe.scores(val.features), val.labels["Looks"])
    expected = f1_scores(probe.scores(test.features), test.labels["Looks"], thresholds)
    values = run_report(network, mixed)
    for mean, value in expected.items():
        assert values[f"test/f1_{mean}/looks"] == pytest.approx(value)


def test_a_set_or_number_that_a_split_lacks_is_named(dataset: Dataset) -> None:
    mixed = of_every_kind(dataset)
    bits, price = mixed.table.multi_hot["Looks"].copy(), mixed.table.continuous["price"].copy()
    bits[mixed.table.rows("val")] = 255
    price[mixed.table.rows("test")] = np.nan
    table = replace(mixed.table, multi_hot={"Looks": bits}, continuous={"price": price})
    with pytest.raises(DataError, match=r"label 'Looks' must be known .* split 'val'"):
        check_labels(table, ("Looks",), (), SPEC, seed=7)
    with pytest.raises(DataError, match=r"label 'price' must be known .* split 'test'"):
        check_labels(table, ("colour",), ("price",), SPEC, seed=7)
