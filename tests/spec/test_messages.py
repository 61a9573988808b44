"""Tests of the messages about invalid specs."""

import pytest
import yaml

from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec

# A section of a spec, and below it a part of the only line of its message.
CASES = """
data: {kind: synthetic, tasks: a}
    data.tasks must be a list such as [a, b], got 'a'
data: {kind: table, csv: a, images: b, tasks: [1]}
    data.tasks.0 must be a text, got 1
data: {csv: a.csv}
    data.kind: is required
data: {kind: synthetic, tasks: [shape], held_out: [shape]}
    must not repeat a column, got ['shape'] twice
data: {kind: folder, images: a, tasks: [shape], levels: [genus]}
    levels must have unique names, and all of ['shape'], got ['genus']
data: {kind: folder, images: a, tasks: [shape], levels: [shape, shape]}
    levels must have unique names
data: {kind: folder, images: a, tasks: [shape], split_fractions: [0.5, 0.5, 0.5]}
    must be positive and sum to 1
data: {kind: synthetic, held_out: [attributes], held_out_top_k: 3}
    held_out_top_k must go with a held-out column of classes, got 3 with label sets
method: {name: mtcon, temperature_by_task: {shape: 0.0000001}}
    method.temperature_by_task.shape must be greater than or equal to 0.000001, got
model: {encoder: resnet34}
    unknown name 'resnet34'; write model.encoder: {name: torchvision, model: resnet34}
method: {name: mtcon, ema: 0.99}
    method.ema: unknown key; did you mean 'train.ema'?
method: {name: mtcn}
    method.name: unknown name 'mtcn'; did you mean 'mtcon'?
method: {name: mtcon, temperature_by_task: {color: 0.1}}
    temperature_by_task must name tasks of data.tasks ['shape', 'colour', 'texture'], got 'color'; d
method: multisupcon
    data.tasks must have a label set, got {'shape': 'classes', 'colour': 'classes', 'texture': 'clas
{data: {kind: table, csv: a, images: b, tasks: [x,y], multi_hot: {x: a, y: b}}, method: multisupcon}
    task must name one of the label sets ['x', 'y'], got none
{data: {kind: synthetic, tasks: [attributes]}, method: {name: multisupcon, task: attribute}}
    task must be a label set in data.tasks ['attributes'], got 'attribute'; did you mean 'attributes
{data: {kind: synthetic, tasks: [attributes]}, method: {name: multisupcon, sets_from: classes}}
    data.tasks must have a column of classes, got {'attributes': 'set'}
method: {name: multisupcon, sets_from: classes, task: attributes}
    task must be null with sets_from classes, got 'attributes'
{data: {kind: synthetic, tasks: [attributes]}, method: csn}
    data.tasks must have a column of classes
method: {name: csn, num_triplets: 5}
    num_triplets must be at least train.batch_size, got 5 and 64
method: {name: supcon, task: shap}
    task must be a column of classes in data.tasks ['shape', 'colour', 'texture'], got 'shap'; did
method: {name: can}
    model.encoder must be vit to hide patches, got resnet18
model: {encoder: {name: vit, width: 16, heads: 3}}
    width must be divisible by heads, got 16 and 3
model: {encoder: {name: resnet18, weights: imagenet, stem: small}}
    stem must be imagenet where weights is imagenet
{views: {size: 60}, model: {encoder: {name: vit, patch: 8}}}
    views.size must be a multiple of model.encoder.patch
{views: {size: 16}, model: {encoder: {name: vit, patch: 16}}}
    got 16 and 16
views: {crop_scale: [0.5, 0.2]}
    crop_scale must have 0 < low <= high <= 1
views: {crop_ratio: [2.0, 1.0]}
    crop_ratio must have
views: {blur_sigma: [0.0, 1.0]}
    blur_sigma must have
views: {extra: shift}
    views.extra.name: unknown name 'shift'
views: {mean: [1, 2]}
    views.mean.2: is required
{views: {second: {blur: 0.1}}, method: csn}
    must be omitted where an image has one view
{views: {second: {blur: 0.1}, num_views: 1}, method: xent}
    must be omitted where an image has one view
views: {second: {size: 32}}
    views.second.size: unknown key
train: {compile: graph}
    must be 'none' or 'graphs', got 'graph'
train: {optimizer: {eps: 0.1}}
    train.optimizer.eps: unknown key; it belongs to name 'adam' or 'adamw'
train: {momentum: 0, optimizer: {name: sgd, nesterov: true}}
    momentum must be positive with optimizer.nesterov, got 0
train: {epochs: 2, warmup_epochs: 2}
    warmup_epochs must be below epochs 2, got 2.0
tracking: {uri: 'postgresql://me:hunter2@db/runs'}
    tracking.uri must hold no password
resources: {workers: x}
    resources.workers must be a valid integer or be a list such as [a, b], got 'x'
resources: {workers: [1, 4]}
    every number of resources.workers, got 64 and 3

train: {lr: true}
    must be a number, got true or false
resources: {workers: [true, 2]}
    must be a number, got true or false
search: {space: {train.lr: {choice: [true]}}}
    must be a number, got true or false

train: {weight_deca: 3}
    did you mean 'weight_decay'?
lr: 3
    lr: unknown key; did you mean 'train.lr' or 'evaluate.
qqq: 3
    qqq: unknown key; known: data, evaluate,
systems: {}
    systems: unknown key of a spec; files with it are for `mtcon-ray compare`

search: {space: [1]}
    search.space must be a mapping, got [1]
search: {space: {train.lr: {log_uniform: [0.1, 1]}}}
    lr.log_uniform: unknown key; write {loguniform: [low, high]}, {uniform: [low, high]}, {int: [low
search: {space: {train.lr: [0.1, 0.5]}}
    search.space.train.lr must be one of {loguniform: [low, high]}, {uniform: [low, high]}, {int:
search: {space: {method.temprature: {uniform: [0.1, 1]}}}
    temprature: the field refuses 0.1 of uniform: method.temprature: unknown key; did you mean 'temp
search: {space: {method.name: {choice: [mtcon, simclr]}}}
    method.name must not be searched, because trials that differ in it cannot be compared
search: {space: {data.held_out_top_k: {grid: [2, 3]}}}
    data.held_out_top_k must not be searched
search: {space: {data.seed: {grid: [0, 1]}}}
    data.seed must not be searched
search: {space: {evaluate.every: {choice: [1, 2]}}}
    every must not be searched
evaluate: {metrics: [spread]}
    evaluate.metrics.0.name: unknown name 'spread'
evaluate: {metrics: [{}]}
    evaluate.metrics.0.name: is required
search: {space: {train.lr: {uniform: [0.1, 1]}}, first_points: [{b: 1}]}
    first_points[0].b must lie in space
search: {space: {train.lr: {uniform: [0.1, 1]}}, first_points: [{train.lr: 2}]}
    first_points[0].train.lr must lie in space, got 2
search: {space: {train.lr: {uniform: [0.1, 1]}}, sampler: grid}
    sampler grid needs `grid` or `choice` dimensions, got uniform for train.lr
search: {space: {views.crop_scale: {grid: [[0.2, 0.1]]}}}
    the field refuses [0.2, 0.1] of grid
search: {space: {train.epochs: {int: [0, 30]}}}
    train.epochs must be greater than or equal to 1, got 0
"""
LINES = [line for line in CASES.splitlines() if line]


@pytest.mark.parametrize(("section", "message"), [*zip(LINES[::2], LINES[1::2], strict=True)])
def test_a_problem_says_field_rule_value_and_solution(section: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec({"name": "x", **yaml.safe_load(section)})
    assert message.strip() in str(error.value)
    assert "Input" not in str(error.value)
    assert "\n" not in str(error.value)


def test_only_the_first_problems_are_listed() -> None:
    raw = {"name": "x", "train": {f"k{i}": 1 for i in range(50)}, "views": {"flip": 2}}
    with pytest.raises(SpecError) as error:
        parse_spec(raw)
    lines = str(error.value).split("\n  ")
    assert (len(lines), lines[-1]) == (21, "... and 31 more problems")
