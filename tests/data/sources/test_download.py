"""Defaults of a spec that depend on the published data set that it names."""

from typing import Any

import pytest

from mtcon_ray.data.sources import with_recipe_defaults
from mtcon_ray.spec import RunSpec, dump_spec, parse_spec

# Side of views in pixels, encoder and batch size of the papers; of ours for ucmerced.
PAPERS = {
    "zappos50k": (112, "resnet18", 64),
    "medic": (224, "resnet50", 64),
    "cub200": (224, "resnet50", 64),
    "celeba": (64, "resnet50", 128),
    "stl10": (96, "resnet18", 512),
    "cifar10": (32, "resnet18", 512),
    "cifar100": (32, "resnet18", 512),
    "ucmerced": (128, "resnet18", 64),
}


def spec_on(kind: str, **sections: Any) -> RunSpec:
    data = {"kind": kind, "root": "somewhere"}
    return parse_spec({"name": "x", "data": data, "method": "simclr", **sections})


@pytest.mark.parametrize("kind", PAPERS)
def test_size_encoder_and_batch_are_those_of_the_paper(kind: str) -> None:
    spec = spec_on(kind)
    assert (spec.views.size, spec.model.encoder.name, spec.train.batch_size) == PAPERS[kind]
    usual = RunSpec(name="x")
    assert (spec.train.epochs, spec.train.lr) == (usual.train.epochs, usual.train.lr)
    assert parse_spec(dump_spec(spec)) == spec


def test_a_field_that_is_given_stays_and_the_others_are_the_papers() -> None:
    spec = spec_on("medic", views={"size": 64, "hue": 0.0}, model={"encoder": "small"})
    assert (spec.views.size, spec.views.hue, spec.train.batch_size) == (64, 0.0, 64)
    assert spec.model.encoder.name == "small"
    spec = spec_on("stl10", train={"epochs": 3}, model={"head_dim": 32})
    assert (spec.train.epochs, spec.train.batch_size) == (3, 512)
    assert (spec.model.head_dim, spec.model.encoder.model_dump()["stem"]) == (32, "small")


@pytest.mark.parametrize(
    "raw",
    [
        {"name": "x"},
        {"data": "synthetic", "views": None},
        {"data": {"kind": "table", "csv": "labels.csv"}},
        {"data": {"kind": "no such kind"}},
        {"data": {"kind": ["stl10"]}},
        {"data": ["stl10"]},
        ["no spec"],
        {
            "data": {"kind": "stl10"},
            "views": None,
            "model": [],
            "train": {"batch_size": 2},
        },
    ],
)
def test_other_data_and_malformed_sections_are_left_alone(raw: Any) -> None:
    assert with_recipe_defaults(raw) == raw
