"""Test evaluation of a checkpoint, on its own or on other data."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import CARD_FILE, cache_folder, prepare_root
from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import CheckpointError, SpecError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.models.encoders.base import EMBEDDING, read_weights
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.plan.local import choose_device
from mtcon_ray.spec.encoders import WeightsSpec
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.training import checkpoint
from mtcon_ray.training.device import pick_autocast

# Further files of an export.
WEIGHTS_FILE, HEADS_FILE = "weights.safetensors", "heads.safetensors"
MAX_CARD_BYTES, MAX_CLASSES = 2**26, 1_000_000
# The sections of a checkpoint's spec that an override may change, and their fields that have shaped
# the training and change nothing here.
CHANGEABLE = {"data", "evaluate", "resources"}
OF_TRAINING = ("evaluate=", "evaluate.select", "evaluate.every", "evaluate.short_probe")


def open_checkpoint(
    path: Path, *, root: Path, overrides: Sequence[str] = (), callbacks: Callbacks
) -> Evaluation:
    """Returns the evaluation of a checkpoint on the data of its spec, with overrides applied.

    A note tells if the data differ from the training's. The encoder computes in float32. Overrides
    read `a.b=value` and may change the sections data, evaluate (the test evaluation) and resources.
    Also sets torch's number of threads to resources.cpus.

    Raises CheckpointError if the checkpoint cannot be read, SpecError if an override is invalid,
    DataError or ResourceError if the data or a device cannot be used.
    """
    spec, network = load_network(path)
    paths = [override.partition("=")[0].strip() for override in overrides]
    changed = {path.partition(".")[0] for path in paths}
    of_training = [path for path in paths if f"{path}=".startswith(OF_TRAINING)]
    if others := [*changed - CHANGEABLE, *of_training]:
        raise SpecError(
            "--set must change fields of data, resources or the test evaluation here, got "
            f"{others[0]}: the rest of the spec belongs to the checkpoint"
        )
    raw = dump_spec(spec)
    if "data" in changed:
        # Other data may lack the objective's tasks. It is not needed: the network is chosen.
        raw["search"]["objective"] = None
    spec = parse_spec(raw, overrides, where="--set")
    device = choose_device(spec)
    prepare_root(root)
    store, size = cache_folder(root), spec.views.size
    dataset = open_dataset(spec.data, view_size=size, store=store, callbacks=callbacks)
    own = path.name != CARD_FILE and "data" not in changed
    if own and dataset.fingerprint != checkpoint.load(path)["fingerprint"]:
        callbacks.on_note(
            "warning: the data have changed since the training, so test images may have been "
            "trained on; restore the table and the images for the scores of unseen images"
        )
    torch.set_num_threads(spec.resources.cpus)
    return Evaluation(network.to(device), dataset, spec, device)


def evaluate_checkpoint(
    path: Path, *, root: Path, overrides: Sequence[str] = (), callbacks: Callbacks
) -> dict[str, float]:
    """Returns the test evaluation of a checkpoint's encoder, by metric name.

    The data come from the checkpoint's spec with overrides applied. Probes are trained from
    scratch, so the data may have other labels. Raises as `open_checkpoint` and `Evaluation.report`.
    """
    opened = open_checkpoint(path, root=root, overrides=overrides, callbacks=callbacks)
    autocast_dtype = pick_autocast(opened.spec.train.precision, opened.device)
    return opened._replace(autocast_dtype=autocast_dtype).report()


def load_network(path: Path) -> tuple[RunSpec, Network]:
    """Returns the spec and the network of a checkpoint (model.pt or last.pt), on the CPU.

    `path` may be the model.json of an exported folder. Its network lacks what projects nothing,
    such as a decoder.

    The description of an encoder of the Hugging Face hub is read from the library's cache or the
    hub. Raises CheckpointError if the file cannot be read or its network does not fit its spec.
    """
    is_export = path.name == CARD_FILE
    spec, method, state = _read_export(path) if is_export else _load(path)
    encoder = spec.model.encoder
    if hasattr(encoder, "weights") and (is_export or isinstance(encoder, WeightsSpec)):
        # The training's initial weights need not exist any more. A plugin's own field of this name
        # may have another meaning.
        weights = str(path.parent / WEIGHTS_FILE) if is_export else None
        encoder = encoder.model_copy(update={"weights": weights})
    model = spec.model.model_copy(update={"encoder": encoder})
    network = build_network(model, method.make_network, spec.seed)
    _fill(network.heads if is_export else network, state["network"], path)
    if is_export:
        found = read_weights(path.parent / WEIGHTS_FILE).items()
        layer = {k.removeprefix(EMBEDDING): v for k, v in found if k.startswith(EMBEDDING)}
        _fill(network.encoder.embedding_layer, layer, path)
    return spec, network


def _read_export(path: Path) -> tuple[RunSpec, Method, dict[str, Any]]:
    """Returns the spec, the method and the heads of an exported folder by its model.json."""
    try:
        with open_regular(path, MAX_CARD_BYTES) as file:
            about = json.load(file)
        spec = parse_spec(about["spec"], where=str(path))
        sizes = {task: int(about["sizes"][task]) for task in spec.data.tasks}
        if not all(0 < size <= MAX_CLASSES for size in sizes.values()):
            raise ValueError(f"sizes must be from 1 to {MAX_CLASSES:,}, got {sizes}")
        heads = load_file(path.parent / HEADS_FILE)
        open_regular(path.parent / WEIGHTS_FILE).close()
    except (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError) as error:
        raise CheckpointError(
            f"{path.parent} is no complete export of this version: {error}; export again"
        ) from None
    return spec, METHODS[spec.method.name](spec.method, spec.problem(sizes)), {"network": heads}


def _load(path: Path) -> tuple[RunSpec, Method, dict[str, Any]]:
    """Returns a checkpoint's spec, its method as at the start, and its content."""
    state = checkpoint.load(path)
    spec = checkpoint.spec_in(path, state)
    with checkpoint.reading(path):
        # Sizes from the checkpoint, not from data, which may have other classes by now.
        problem = spec.problem(dict(state["sizes"]))
        # With `train.ema` last.pt has both networks. The average is what is probed.
        state["network"] = dict(state.get("average") or state["network"])
    return spec, METHODS[spec.method.name](spec.method, problem), state


def _fill(module: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copies a checkpoint's tensors to a module. Raises CheckpointError if they do not fit."""
    try:
        if any(isinstance(tensor, Tensor) and tensor.is_complex() for tensor in tensors.values()):
            # A layer would take their real parts.
            raise RuntimeError("its tensors must be of real numbers")
        module.load_state_dict(tensors)
    except RuntimeError as error:
        first = str(error).splitlines()[:2][-1].strip()  # torch's first line names the class
        raise CheckpointError(
            f"checkpoint {path} does not fit the network of its spec: {first}; read it with the "
            "version of mtcon-ray that wrote it"
        ) from None
