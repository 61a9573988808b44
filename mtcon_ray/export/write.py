"""Export of a trained encoder to a folder of files for use without this package.

model.pt2 or model.onnx   the model, from images to the embedding and all labels' predictions
weights.safetensors       the encoder's parameters by name (for torchvision and timm: their names)
heads.safetensors         the parameters of the method's heads
probes.safetensors        the other parameters by name, for other frameworks
model.json                classes, preprocessing, scores, spec and fingerprint of the data
README.md                 the same for people, and how to load the model
"""

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import reduce
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from jinja2 import Environment, StrictUndefined
from safetensors.torch import save
from torch import Tensor
from torch.export import Dim

from mtcon_ray.base import metrics
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import CARD_FILE
from mtcon_ray.base.registry import PathMark, fields_with
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import ResourceError, UserError
from mtcon_ray.evaluation.probe import LinearProbe
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.model import ExportedModel, Head
from mtcon_ray.export.trained_network import HEADS_FILE, WEIGHTS_FILE, open_checkpoint
from mtcon_ray.spec.run_spec import RunSpec, dump_spec
from mtcon_ray.training import checkpoint
from mtcon_ray.version import __version__

# Upper bounds of the dynamic dimensions, declared to torch.export.
MAX_IMAGES, MAX_SIDE = 2**20, 2**16
# Sections of the spec left out of exports: they name machines, servers and directories.
PRIVATE = ("search", "resources", "tracking", "storage")


def export_checkpoint(
    path: Path,
    to: Path,
    *,
    root: Path,
    format: Literal["pt2", "onnx"] = "pt2",
    title: str | None = None,
    overrides: Sequence[str] = (),
    callbacks: Callbacks,
) -> dict[str, Any]:
    """Writes the folder `to` atomically. Returns the content of its model.json.

    Probes of all tasks and held-out labels are fitted as for the test evaluation, but on float32
    features, because the exported model computes in float32.

    Raises UserError if `to` exists or the extra `onnx` is missing, ResourceError if `to` cannot be
    written, and all errors of `open_checkpoint`.
    """
    if to.exists():
        raise UserError(f"--out must name a new folder, got {to}, which exists already")
    if path.name == CARD_FILE:
        raise UserError(f"{path.parent} is an export; export the training that it came from")
    if format == "onnx" and find_spec("onnxscript") is None:
        raise UserError("--to onnx needs onnxscript; install 'mtcon-ray[onnx]', or take --to pt2")
    opened = open_checkpoint(path, root=root, overrides=overrides, callbacks=callbacks)
    callbacks.on_note("fitting a probe for each label")
    measurement = opened.full_measurement()
    probes = measurement.fit().probes
    scores, file = measurement.scores_of(probes), f"model.{format}"
    state = checkpoint.load(path)
    facts = card(opened, scores, state, title or path.stem, file)
    # The checkpoint's tasks are its heads. Images are made square as for the probes.
    own = checkpoint.spec_in(path, state)
    squares: dict[str, Any] = {"store_size": opened.dataset.images.shape[1]}
    if hasattr(own.data, "resize"):
        squares["resize"] = getattr(opened.spec.data, "resize", "squash")
    data = own.data.model_copy(update=squares)
    facts["spec"] = _public(own.model_copy(update={"data": data}))
    network = opened.network.cpu()
    heads = {label: _head(probes[label]) for label in measurement.places}
    model = ExportedModel(network, heads, opened.spec).eval().requires_grad_(False)
    _write(model, network.heads.state_dict(), facts, to)
    return facts


def _head(probe: LinearProbe) -> Head:
    """Returns the probe as a module."""
    weight = probe.weight.cpu().float()
    return Head(weight[:-1], weight[-1], is_set=probe.kind == "set")


def _write(model: ExportedModel, heads: dict[str, Tensor], facts: dict[str, Any], to: Path) -> None:
    building = to.with_name(f".{to.name}.partial")
    try:
        shutil.rmtree(building, ignore_errors=True)
        building.mkdir(parents=True)
        about = {part: json.dumps(facts[part]) for part in ("labels", "preprocessing")}
        _save(model, building / facts["model"]["file"], about)
        for file, state in ({HEADS_FILE: heads} | _states(model)).items():
            # safetensors refuses tensors that are not contiguous, such as channels_last tensors.
            tensors = {name: tensor.contiguous() for name, tensor in state.items()}
            # Not with safetensors' `save_file`: its files are readable by the owner only.
            (building / file).write_bytes(save(tensors, {"format": "pt", **about}))
        text = json.dumps(facts, indent=1, ensure_ascii=False)
        (building / CARD_FILE).write_text(text + "\n", encoding="utf-8")
        (building / "README.md").write_text(card_text(facts), encoding="utf-8")
        os.rename(building, to)
    except OSError as error:
        raise ResourceError(f"cannot write {to}: {error}; choose another --out") from None
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _states(model: ExportedModel) -> dict[str, dict[str, Tensor]]:
    """Returns the tensors of each safetensors file by its name."""
    keys = model.encoder.file_keys()
    encoder = {keys[key]: value for key, value in model.encoder.state_dict().items()}
    rest = {k: v for k, v in model.state_dict().items() if not k.startswith("encoder.")}
    return {WEIGHTS_FILE: encoder, "probes.safetensors": rest}


def _save(model: ExportedModel, path: Path, about: dict[str, str]) -> None:
    size = model.resize.size
    # All sides differ, from each other and from the stored size. Otherwise torch.export would
    # assume that equal sizes are always equal.
    example = torch.zeros(2, size + 3, size + 5, 3, dtype=torch.uint8)
    sides = {1: Dim("H", min=1, max=MAX_SIDE), 2: Dim("W", min=1, max=MAX_SIDE)}
    free = ({0: Dim("N", min=1, max=MAX_IMAGES), **sides},)
    if path.suffix == ".pt2":
        exported = torch.export.export(model, (example,), dynamic_shapes=free)
        torch.export.save(exported, path, extra_files=about)
        return
    names = ["embedding", *(f"labels/{name}" for name in model.names)]
    program = torch.onnx.export(
        model, (example,), dynamo=True, dynamic_shapes=free,
        input_names=["images"], output_names=names, verbose=False,
    )  # fmt: skip
    assert program is not None
    program.model.metadata_props.update(about)
    program.save(path)


def card(
    opened: Evaluation, scores: Mapping[str, float], state: Mapping[str, Any], title: str, file: str
) -> dict[str, Any]:
    """Returns the content of model.json without the spec.

    `scores` are metrics by name. Fingerprint, epoch and value of `state`, the checkpoint, are
    recorded.
    """
    spec, dataset, views = opened.spec, opened.dataset, opened.spec.views
    objective = spec.labels.objective
    return {
        "title": title,
        "model": {
            "file": file,
            "input": "uint8 [N, height, width, 3], RGB, any height and width",
            "precision": "float32",
            "encoder": spec.model.encoder.name,
            "method": spec.method.name,
            "heads": [*opened.network.names],
            "checkpoint": {"epoch": state.get("epoch"), objective: state.get("value")},
        },
        "preprocessing": {
            "resize": getattr(spec.data, "resize", "squash"),
            "stored_size": dataset.images.shape[1],
            **views.model_dump(mode="json", include={"size", "mean", "std"}),
        },
        "labels": {
            name: _label(name, dataset, metrics.reading(scores, *place))
            for name, place in spec.labels.places.items()
        },
        "data": {"fingerprint": dataset.fingerprint, "trained_on": state["fingerprint"]},
        "sizes": state["sizes"],
        "versions": {"mtcon-ray": __version__, "torch": torch.__version__},
    }


def _label(name: str, dataset: Dataset, found: metrics.Reading) -> dict[str, Any]:
    table = dataset.table
    kind, classes = table.kind_of(name), table.classes | table.multi_hot_names
    return {
        "kind": kind,
        "trained": name in dataset.tasks,
        "classes": list(classes[name]),
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
    environment.filters |= {"cell": _cell, "quote": shlex.quote}
    text = files("mtcon_ray.export").joinpath("card.md").read_text(encoding="utf-8")
    return environment.from_string(text).render(facts)


def _cell(name: str) -> str:
    """Returns a label's name without line breaks and bars, which would break a Markdown table."""
    return json.dumps(name, ensure_ascii=False)[1:-1].replace("|", "\\|")
