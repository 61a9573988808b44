"""Description of an exported model: model.json for programs, README.md for people."""

import json
import platform
from collections.abc import Mapping
from functools import reduce
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, StrictUndefined

from mtcon_ray.base import metrics
from mtcon_ray.base.registry import PathMark, fields_with
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.spec.run_spec import RunSpec, dump_spec
from mtcon_ray.version import __version__

FORMAT = 1
# Sections of the spec left out of exports: they name machines, servers and directories.
PRIVATE = ("search", "resources", "tracking", "storage")
SQUARE = {
    "squash": "both sides to stored_size, so that shapes are squashed",
    "crop": "the central square of the shorter side to stored_size",
    "pad": "the longer side to stored_size, in the middle of a white square",
}
MEANING = {
    "classes": "probability of each class",
    "set": "probability of each label",
    "number": "the number, in the column's own unit",
}


def card(
    spec: RunSpec,
    dataset: Dataset,
    scores: Mapping[str, float],
    *,
    title: str,
    file: str,
    checkpoint: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns the content of model.json. Paths in the spec are reduced to file names.

    `scores` are metrics by name. Fingerprint, epoch and value of the checkpoint are recorded.
    """
    views = spec.views
    objective = spec.labels.objective
    return {
        "format": FORMAT,
        "title": title,
        "model": {
            "file": file,
            "input": "uint8 [N, height, width, 3], RGB, any height and width",
            "precision": "float32",
            "encoder": spec.model.encoder.name,
            "method": spec.method.name,
            "checkpoint": {"epoch": checkpoint.get("epoch"), objective: checkpoint.get("value")},
        },
        "preprocessing": {
            "resize": f"{SQUARE[spec.data.made_square]}; bilinear, antialiased, 8 bits as Pillow; "
            "then to `size`",
            "stored_size": dataset.images.shape[1],
            "size": views.size,
            "mean": list(views.mean),
            "std": list(views.std),
        },
        "labels": {
            name: _label(name, dataset, scores) for name in (*dataset.tasks, *dataset.held_out)
        },
        "data": {"fingerprint": dataset.fingerprint, "trained_on": checkpoint["fingerprint"]},
        "spec": _public(spec),
        "sizes": checkpoint["sizes"],
        "versions": {
            "mtcon-ray": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }


def _label(name: str, dataset: Dataset, scores: Mapping[str, float]) -> dict[str, Any]:
    table = dataset.table
    kind, classes = table.kind_of(name), table.classes | table.multi_hot_names
    split = "test" if name in dataset.tasks else "heldout"
    slug = metrics.slugs((*dataset.tasks, *dataset.held_out))[name]
    found = metrics.reading(scores, split, slug)
    return {
        "kind": kind,
        "trained": name in dataset.tasks,
        "output": MEANING[kind],
        "classes": None if kind == "number" else list(classes[name]),
        "score": {"name": metrics.SCORES[kind], "test": found.value, "deviation": found.std},
    }


def _public(spec: RunSpec) -> dict[str, Any]:
    sections = {key: value for key, value in dump_spec(spec).items() if key not in PRIVATE}
    for path in fields_with(RunSpec, PathMark):
        *keys, last = path.split(".")
        section = reduce(lambda found, key: found.get(key) or {}, keys, sections)
        if section.get(last):
            section[last] = Path(section[last]).name
    return sections


def card_text(facts: Mapping[str, Any]) -> str:
    """Returns the text of README.md for the content of model.json."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["cell"] = _cell
    text = files("mtcon_ray.export").joinpath("card.md").read_text(encoding="utf-8")
    return environment.from_string(text).render(facts)


def _cell(name: str) -> str:
    """Returns a label's name without line breaks and bars, which would break a Markdown table."""
    return json.dumps(name, ensure_ascii=False)[1:-1].replace("|", "\\|")
