"""Trainings with class-balanced batches (`train.balance`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.data.sampling import items
from mtcon_ray.errors import SpecError
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.planning import make_plan
from mtcon_ray.spec.problem import MISSING
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.distributed import ALONE, Ranks
from tests import specs
from tests.training.trainer.cuts import CPU

SPEC: dict[str, Any] = {
    **specs.TINY,
    "name": "balanced",
    "data": {"kind": "synthetic", "num_items": 100, "tasks": ["shape", "colour"]},
    "train": {"epochs": 2, "batch_size": 16, "precision": "float32", "balance": ["shape"]},
}


def spec(**train: Any) -> RunSpec:
    """Returns the spec with changed fields of `train`."""
    return parse_spec({**SPEC, "train": {**SPEC["train"], **train}})


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Returns 70 training images; of most with shape 0 the label is missing."""
    data = open_dataset(spec().data, view_size=16, store=tmp_path_factory.mktemp("store"))
    shape_N = data.table.labels["shape"]
    shape_N[np.flatnonzero(shape_N == 0)[4:]] = MISSING
    return data


def make(dataset: Dataset, balance: Sequence[str], ranks: Ranks = ALONE) -> Batches:
    """Returns the batches of a training."""
    examples = items(dataset.table.rows("train"), 2)
    return Batches(dataset, examples, spec(balance=balance), device=CPU, ranks=ranks)


def counts_of(batches: Batches, step: int, dataset: Dataset) -> torch.Tensor:
    """Returns how many shapes of a step are missing, and how many are of each class."""
    _, batch = batches(step)
    return torch.bincount(
        batch.labels["shape"] + 1, minlength=1 + len(dataset.table.classes["shape"])
    )


def test_batches_are_balanced_and_an_epoch_keeps_its_steps(dataset: Dataset) -> None:
    batches, plain = make(dataset, ["shape"]), make(dataset, [])
    assert batches.steps_per_epoch == plain.steps_per_epoch == 4
    differ = []
    for step in range(8):
        counts, usual = (counts_of(each, step, dataset) for each in (batches, plain))
        assert counts[0] == 0
        assert counts[1:].max() - counts[1:].min() <= 1
        differ.append(int(usual[1:].max() - usual[1:].min()))
    assert max(differ) > 1


def test_each_worker_makes_its_share_of_the_same_batch(dataset: Dataset) -> None:
    """Labels are those of the whole batch on each worker; the views follow one another."""
    x_NCHW, batch = make(dataset, ["shape"])(5)
    parts = [make(dataset, ["shape"], Ranks(rank, 2))(5) for rank in range(2)]
    assert torch.equal(torch.cat([x for x, _ in parts]), x_NCHW)
    for _, seen in parts:
        assert all(torch.equal(seen.labels[t], batch.labels[t]) for t in batch.labels)


def test_the_plan_says_how_many_images_are_left_out(dataset: Dataset, tmp_path: Path) -> None:
    cluster = ClusterView("here", (NodeKind("node", 2, 0, 1),))
    missing = (dataset.table.labels["shape"][dataset.table.rows("train")] == MISSING).sum()
    plan = make_plan(spec(balance=["shape", "colour"]), tmp_path, cluster, dataset.table)
    told = [text for text in plan.warnings if "train.balance" in text]
    assert told == [
        f"train.balance 'shape' draws no image without that label: {missing} of 70 training images "
        "are left out in its steps"
    ]


@pytest.mark.parametrize(
    ("balance", "more", "message"),
    [
        (
            ["shap"],
            {},
            r"must name tasks of classes .* \['shape'\], got 'shap'; did you mean 'shape'",
        ),
        (["attributes"], {}, r"must name tasks of classes .* \['shape'\], got 'attributes'"),
        ("shape", {}, r"train.balance must be a list, got 'shape'; write \[shape\]"),
        (["shape"], {"method": "csn"}, r"must be \[\] for a method that trains on triplets"),
    ],
    ids=["unknown", "label set", "no list", "triplets"],
)
def test_what_cannot_be_balanced_is_refused(balance: Any, more: Any, message: str) -> None:
    data = {"kind": "synthetic", "tasks": ["shape", "attributes"]}
    with pytest.raises(SpecError, match=message):
        parse_spec({"name": "x", "data": data, "train": {"balance": balance}, **more})
