"""Tests of the plan: exact counts, times, and specs that could never run."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torchvision.models import resnet18

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import CheckpointError, DataError, ResourceError, SpecError
from mtcon_ray.evaluation.probe_data import fewest_labels, majority_shares
from mtcon_ray.models.encoders.base import fetch_weights
from mtcon_ray.models.encoders.torchvision import ResNet18
from mtcon_ray.models.network import build_network
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.plan import Plan
from mtcon_ray.plan.planning import Rates, make_plan, with_each
from mtcon_ray.plan.traffic import store_traffic
from mtcon_ray.spec.problem import MISSING
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from tests import specs
from tests.data.labels import labels_of
from tests.plans import plan_of
from tests.problems import projections

SEARCH: dict[str, Any] = {"space": {"method.temperature": {"uniform": [0.1, 1.0]}}}
RATES = Rates(100.0, 7.0, 40.0)
ONE = ClusterView("here", (NodeKind("node", 2, 0, 1),))


def spec_of(**sections: Any) -> RunSpec:
    return parse_spec({**specs.SHORT, "name": "x", "evaluate": {}, "tracking": {}, **sections})


def plan_on(spec: RunSpec, view: ClusterView = ONE, **options: Any) -> Plan:
    return plan_of(spec, Path("/root-of-test"), view, **options)


def test_counts_are_exact() -> None:
    space = {"method.temperature": {"grid": [0.1, 0.2, 0.5]}}
    search = {"space": space, "sampler": "grid", "repeats": 2, "scheduler": {"name": "asha"}}
    spec = spec_of(search=search)
    plan = plan_on(spec)
    assert sum(plan.num_items.values()) == 300
    assert (plan.num_trials, plan.concurrency, plan.views_per_step) == (6, 2, 64)
    assert plan.steps_per_epoch == plan.num_items["train"] // 32
    assert plan.images_per_trial == plan.steps_per_epoch * 32 * 4
    assert (plan.scheduler, plan.rung_epochs) == ("asha", (1, 2))
    assert plan.device_hours is None
    network = build_network(spec.model, projections(spec.data.tasks, dim=spec.model.head_dim), 0)
    assert plan.parameters == sum(p.numel() for p in network.parameters())


def test_a_plan_has_the_shares_of_the_largest_classes_and_the_objective() -> None:
    data = {"kind": "synthetic", "num_items": 300, "tasks": ["shape", "attributes"]}
    spec = spec_of(data={**data, "held_out": []})
    plan = plan_on(spec)
    assert plan.majority == majority_shares(labels_of(spec.data), ["shape", "attributes"])
    assert plan.objective == "val/score"
    plan = plan_on(spec_of())
    assert (plan.objective, plan.rung_epochs) == ("val/accuracy", ())
    assert plan.scheduler == "none (the default; search.scheduler is omitted)"


@pytest.mark.parametrize("method", ["csn", "scenet"])
def test_triplets_make_the_epochs_of_triplet_methods(method: str) -> None:
    """An epoch is one pass over the triplets, with three images each and one view per image."""
    spec = spec_of(method={"name": method, "num_triplets": 1000})
    plan = plan_on(spec, rates=Rates(100.0, 0.0, 0.0))
    assert (plan.steps_per_epoch, plan.views_per_step) == (31, 96)
    assert plan.images_per_trial == 31 * 32 * 4 * 3
    assert plan_on(spec_of(method={"name": method})).steps_per_epoch == 10_000 // 32
    assert plan.device_hours == pytest.approx(31 * 32 * 4 * 3 / 100 / 3600)


def test_probes_of_few_items_are_warned_of_where_configurations_are_compared() -> None:
    noisy = plan_on(spec_of(search=SEARCH))
    num_val = noisy.num_items["val"]
    assert noisy.standard_error == pytest.approx((0.25 / num_val) ** 0.5)
    (warning,) = noisy.warnings
    needed = f"that needs 625 validation items, and a probe has {num_val}: val has {num_val},"
    assert needed in warning
    assert plan_on(spec_of()).warnings == ()
    large = {"kind": "synthetic", "num_items": 7000}
    limited = {"short_probe": {"max_items": 400}}
    (warning,) = plan_on(spec_of(data=large, search=SEARCH, evaluate=limited)).warnings
    why = "a probe has 400: val has 700, and evaluate.short_probe.max_items is 400"
    assert warning.endswith(f"got up to 0.025; that needs 625 validation items, and {why}")
    assert plan_on(spec_of(data=large, search=SEARCH)).warnings == ()


def test_rates_give_hours_with_probes_and_test_evaluations() -> None:
    """Five trials, two at a time, take three times one trial's time. Epochs 3 and 4 are probed."""
    search = {**SEARCH, "num_trials": 5, "scheduler": {"name": "none"}}
    plan = plan_on(spec_of(evaluate={"every": 3}, search=search), rates=RATES)
    seconds = plan.images_per_trial / 100 + 2 * 7 + 40
    assert plan.device_hours == pytest.approx(5 * seconds / 3600)
    assert plan.wall_hours == pytest.approx(3 * seconds / 3600)


def test_early_stopping_that_is_known_shortens_the_hours() -> None:
    """Nine trials train 3 epochs, and three of them 9: 9 * 3 + 3 * 6 of 81 epochs."""
    search = {**SEARCH, "num_trials": 9, "scheduler": {"name": "halving"}}
    spec = spec_of(search=search, train={"batch_size": 32, "epochs": 9})
    plan = plan_on(spec, rates=RATES)
    training = plan.images_per_trial / 100 + 9 * 7
    assert plan.device_hours == pytest.approx((training * 45 / 9 + 9 * 40) / 3600)
    assert plan.wall_hours == pytest.approx(5 * (training * 45 / 81 + 40) / 3600)
    plan = plan_on(spec, ClusterView("here", (NodeKind("node", 9, 0, 1),)), rates=RATES)
    assert plan.wall_hours == pytest.approx((training + 40) / 3600), "one trains to its end"


@pytest.mark.parametrize(
    ("resources", "kind"), [({"workers": 2}, (2, 0, 1)), ({"gpus": 0.5}, (2, 1, 1))]
)
def test_unmeasured_has_no_wall_time(resources: dict[str, Any], kind: tuple[int, int, int]) -> None:
    """What was not measured has no wall clock."""
    view = ClusterView("c", (NodeKind("node", *kind),))
    plan = plan_on(spec_of(resources=resources), view, rates=RATES)
    assert plan.device_hours is not None
    assert plan.wall_hours is None


def resnet(weights: Path | str | None) -> RunSpec:
    encoder = {"name": "resnet18", "weights": None if weights is None else str(weights)}
    return spec_of(model={"encoder": encoder})


def test_weights_are_compared_with_the_network(tmp_path: Path) -> None:
    """A wrong file of weights is found by the plan, before any trial."""
    file = tmp_path / "weights.pt"
    state = resnet18(weights=None).state_dict()
    torch.save({**state, "conv1.weight": torch.zeros(64, 1, 7, 7)}, file)
    rule = r"weights\.pt does not fit the encoder: size mismatch for net\.conv1\.weight"
    with pytest.raises(CheckpointError, match=rule):
        plan_on(resnet(file))


def test_without_a_count_only_networks_that_check_their_spec_are_built(tmp_path: Path) -> None:
    """As `validate` plans: weights are still compared, and other networks are not built."""
    for spec in (spec_of(), resnet(None)):
        assert plan_on(spec, count_parameters=False).parameters is None
    with pytest.raises(CheckpointError, match=r"weights: .*none\.pt cannot be read: No such file"):
        plan_on(resnet(tmp_path / "none.pt"), count_parameters=False)


def test_searched_weights_are_fetched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searched weights are downloaded once, before trials would each download them."""
    download = Mock(return_value={})
    monkeypatch.setattr(ResNet18, "download", download)
    search = {"space": {"model.encoder.weights": {"choice": [None, "imagenet"]}}}
    spec = spec_of(model={"encoder": {"name": "resnet18"}}, search=search)
    for each in with_each(spec, "model.encoder."):
        fetch_weights(each.model.encoder, tmp_path)
    download.assert_called_once()
    assert download.call_args.args[0].weights == "imagenet"


def test_views_that_a_published_model_does_not_take_are_refused() -> None:
    encoder = {"name": "torchvision", "model": "vit_b_32"}
    with pytest.raises(SpecError, match=r"views\.size must be a size .* got 16: .*Expected 224"):
        plan_on(spec_of(model={"encoder": encoder}))
    search = {"space": {"views.size": {"choice": [192, 224]}}}
    with pytest.raises(SpecError, match=r"views\.size must be a size .* got 192: .*Expected 224"):
        plan_on(spec_of(model={"encoder": encoder}, views={"size": 224}, search=search))


def test_a_task_without_triplets_is_refused() -> None:
    data = {"kind": "synthetic", "num_items": 300, "tasks": ["shape", "colour"]}
    spec = spec_of(data=data, method={"name": "csn"})
    table = labels_of(spec.data)
    rows = table.rows("train")
    table.labels["colour"][rows[2:]] = MISSING
    table.labels["colour"][rows[:2]] = 0, 1
    with pytest.raises(DataError, match="task 'colour' has no triplets: each of its 2 classes"):
        make_plan(spec, Path("/root-of-test"), ONE, table)


SUPCON = {"name": "supcon", "task": "shape"}


OF_HEADS = [
    ({"name": "mtcon"}, [], "head/map_at_r", None),
    (SUPCON, ["shape"], "head/map_at_r/shape", None),
    (SUPCON, [], "head/map_at_r", "head/map_at_r/shape or map_at_r"),
    (SUPCON, ["shape", "colour"], "head/map_at_r/shape", "head/map_at_r/colour or map_at_r"),
    ({"name": "csn"}, [], "head/recall_at_1/colour", "recall_at_1"),
]


@pytest.mark.parametrize(("method", "searched", "objective", "name"), OF_HEADS)
def test_an_objective_in_the_space_of_a_head_needs_the_head(
    method: dict[str, Any], searched: list[str], objective: str, name: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Found without a count of parameters, as `validate` plans, for each listed value.

    The head of a triplet method is the space of its features, even with the name of a task.
    """
    monkeypatch.setattr("mtcon_ray.methods.triplet.HEAD", "colour")
    space = {"method.task": {"choice": searched}} if searched else {}
    data = {**specs.SHORT["data"], "tasks": ["shape", "colour"]}
    spec = spec_of(method=method, data=data, search={"space": space, "objective": objective})
    if name is None:
        assert plan_on(spec, count_parameters=False).objective == "val/objective"
        return
    with pytest.raises(SpecError, match=rf"objective head/.* with a head, .*; name {name}$"):
        plan_on(spec, count_parameters=False)


def test_a_metric_of_classes_is_refused_if_the_data_have_other_labels() -> None:
    """A plugin's source may return a label set for what its section calls classes."""
    spec = spec_of(search={"objective": "knn/shape"})
    table = labels_of(spec.data)
    sets = {"shape": table.labels.pop("shape")[:, None].clip(max=1).astype(np.uint8)}
    with pytest.raises(DataError, match="knn/shape needs a column of classes"):
        make_plan(spec, Path("/root-of-test"), ONE, replace(table, multi_hot=sets))


def test_a_plan_downloads_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delattr("torch.hub.urlopen")
    assert plan_on(resnet("imagenet")).parameters == plan_on(resnet(None)).parameters
    assert list(tmp_path.iterdir()) == []


def test_a_batch_larger_than_the_training_split_is_refused() -> None:
    train, space = {"batch_size": 512, "epochs": 4}, {"train.batch_size": {"choice": [32, 512]}}
    for sections in ({"train": train}, {"search": {"space": space}}):
        with pytest.raises(DataError, match=r"batch_size must be at most .* got 512"):
            plan_on(spec_of(**sections))
    searched = {"space": {"train.batch_size": {"choice": [16, 32]}}}
    plan_on(spec_of(train=train, search=searched))  # no trial has 512
    plan_on(spec_of(train=train, method="none"))  # nothing is trained


TOO_LARGE = [
    ({"gpus": 8}, "must fit some node of here, got 1 CPUs and 8 GPUs per worker"),
    ({"workers": 4}, "got 4 workers of 1 CPUs and 0 GPUs where at most 2 fit"),
]


@pytest.mark.parametrize(("resources", "message"), TOO_LARGE)
def test_what_no_node_can_ever_give_is_refused(resources: dict[str, Any], message: str) -> None:
    with pytest.raises(ResourceError, match=message):
        plan_on(spec_of(resources=resources))


def test_unknown_labels_count_in_no_majority() -> None:
    """Shares are of known items; in a set, a label without known items counts as 0."""
    table = LabelTable(
        names=("a",) * 6,
        labels={"kind": np.array([0, 1, 1, 1, -1, 2])},
        classes={"kind": ("x", "y", "z")},
        split=np.array([0, 2, 2, 2, 2, 2], dtype=np.int8),
        multi_hot={"set": np.array([[1, 1], [1, 255], [0, 255], [255, 255], [1, 255], [0, 255]])},
        multi_hot_names={"set": ("p", "q")},
    )
    assert majority_shares(table, ["kind", "set"]) == {"kind": 0.75, "set": pytest.approx(0.25)}


def partly_labelled(search: dict[str, Any]) -> Plan:
    """Returns the plan of 1,500 validation items, 10 of them with a label of `colour`."""
    data = {"kind": "synthetic", "num_items": 15_000, "tasks": ["shape", "colour"]}
    spec = spec_of(data=data, search=search, evaluate={"short_probe": {"max_items": 1500}})
    table = labels_of(spec.data)
    unknown = np.concatenate([table.rows("val")[10:], table.rows("test")[1:]])
    table.labels["colour"][unknown] = MISSING
    return make_plan(spec, Path("/root-of-test"), ONE, table)


def test_the_standard_error_is_that_of_the_task_with_the_fewest_labels() -> None:
    """Only the tasks of the objective count, and only the items that a probe reads."""
    plan = partly_labelled(SEARCH)
    assert plan.standard_error == pytest.approx(0.5 / 10**0.5)
    *_, few, noise = plan.warnings
    told = "with fewer than 5, a score and its deviation say nothing"
    assert few == f"'colour' has a label in 1 of the items of the test split: {told}"
    assert "and a probe has 10: val has 10 with a label of 'colour', and" in noise
    plan = partly_labelled({**SEARCH, "objective": "shape"})
    assert plan.standard_error == pytest.approx(0.5 / 1500**0.5)
    assert "standard error" not in plan.warnings[-1]


def test_the_probe_of_each_seed_must_find_all_tasks() -> None:
    spec = spec_of(data={"kind": "synthetic", "num_items": 400}, search={**SEARCH, "repeats": 40})
    spec = with_values(spec, {"evaluate.short_probe.max_items": 20})
    table = labels_of(spec.data)
    table.labels["colour"][table.rows("train")[40:]] = MISSING
    fewest_labels(table, with_values(spec, {"search.repeats": 1}))
    with pytest.raises(DataError, match="label 'colour' is unknown for all 20 items of split"):
        fewest_labels(table, spec)


@pytest.mark.parametrize(("train", "num"), [({}, 2), ({"ema": 0.9}, 3), ({"optimizer": "adam"}, 3)])
def test_an_average_and_moments_are_uploaded_too(train: dict[str, Any], num: int) -> None:
    """A save has the resume state and the network, of 4 bytes per parameter."""
    spec = spec_of(train={**specs.SHORT["train"], "checkpoint_seconds": 3600, **train})
    assert store_traffic(spec, 1000, 1)[1] == (num + 1) * 4000
