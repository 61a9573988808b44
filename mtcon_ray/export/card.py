"""Description of an exported model: model.json for programs, README.md for people."""

import json
import platform
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from mtcon_ray import __version__, metrics
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.spec import PATHS, RunSpec, dump_spec

FORMAT = 1
# Sections of the spec that are not exported: they name machines, servers and directories.
PRIVATE = ("search", "resources", "tracking", "storage")
USE = {
    "model.pt2": """import torch
model = torch.export.load("model.pt2").module()
found = model(torch.from_numpy(images))  # found["embedding"], found["labels"][name]""",
    "model.onnx": """import onnxruntime
session = onnxruntime.InferenceSession("model.onnx")
embedding, *labels = session.run(None, {"images": images})""",
}
READ = """import numpy, PIL.Image, PIL.ImageOps
image = PIL.Image.open("photograph.jpg")
image.draft("RGB", ({twice}, {twice}))  # a large JPEG decoded smaller, as for its scores
image = PIL.ImageOps.exif_transpose(image)  # upright
images = numpy.array(image.convert("RGB"))[None]"""
SQUARE = {
    "squash": "both sides to stored_size, so that shapes are squashed",
    "crop": "the central square of the shorter side to stored_size",
    "pad": "the longer side to stored_size, in the middle of a white square",
}
NOTE = {
    "model.pt2": "Open a `.pt2` only from somebody whom you would let run code: torch's reader may "
    "run what is in it. `weights.safetensors` runs nothing.",
    "model.onnx": "Outputs are named `embedding`, then `labels/NAME` in the order of the table.",
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

    `scores` are metrics by name; of the checkpoint fingerprint, epoch and value are recorded.
    """
    views = spec.views
    objective = metrics.objective_name(map(spec.data.kind_of, spec.data.tasks))
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
    found = metrics.reading(scores, split, metrics.slug(name))
    return {
        "kind": kind,
        "trained": name in dataset.tasks,
        "output": MEANING[kind],
        "classes": None if kind == "number" else list(classes[name]),
        "score": {"name": metrics.SCORES[kind], "test": found.value, "deviation": found.std},
    }


def _public(spec: RunSpec) -> dict[str, Any]:
    sections = {key: value for key, value in dump_spec(spec).items() if key not in PRIVATE}
    for path in PATHS:
        *keys, last = path.split(".")
        section = reduce(lambda found, key: found.get(key) or {}, keys, sections)
        if section.get(last):
            section[last] = Path(section[last]).name
    return sections


def card_text(facts: Mapping[str, Any]) -> str:
    """Returns the text of README.md for the content of model.json."""
    model, size = facts["model"], facts["preprocessing"]["stored_size"]
    rows = [_row(name, label) for name, label in facts["labels"].items()]
    weights = facts["spec"]["model"]["encoder"].get("weights")
    start = (
        f" It started from the weights `{weights}`, which have a licence too." if weights else ""
    )
    lines = [
        f"# {facts['title']}",
        "",
        f"An image encoder ({model['encoder']}, trained by {model['method']}) with a linear probe "
        "for each label, exported by mtcon-ray " + facts["versions"]["mtcon-ray"] + ".",
        "",
        "```python",
        USE[model["file"]],
        "```",
        "",
        "`images` is uint8 `[N, height, width, 3]`, RGB, of any size and upright; resizing "
        f"({facts['preprocessing']['resize']}) and normalisation are inside. "
        f"{NOTE[model['file']]} One image file is read by",
        "",
        "```python",
        READ.format(twice=2 * size),
        "```",
        "",
        "Lay a transparent one on white before.",
        "",
        "| label | trained on | output | classes | score on the test split |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
        "Names of the classes, in the order of the outputs, stand in `model.json`, with the spec "
        "and the data's fingerprint; classes and preprocessing are in each model file too. Scores "
        "are of this file's own probes, in float32; those that the training reported may be of "
        "bfloat16.",
        "",
        "The weights were learned from images. Pass them on only as the licences of these images "
        f"allow.{start}",
        "",
    ]
    return "\n".join(lines)


def _row(name: str, label: Mapping[str, Any]) -> str:
    score = label["score"]
    shown = "-" if score["test"] is None else f"{score['test']:.3f} ±{score['deviation']:.3f}"
    count = "-" if label["classes"] is None else str(len(label["classes"]))
    # A label's name may hold line breaks or bars, which would break the Markdown table.
    cells = [
        json.dumps(name, ensure_ascii=False)[1:-1].replace("|", "\\|"),
        "yes" if label["trained"] else "no",
        label["output"],
        count,
        f"{score['name']} {shown}",
    ]
    return f"| {' | '.join(cells)} |"
