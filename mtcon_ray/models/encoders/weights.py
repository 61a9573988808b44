"""Initial parameters of encoders: files of several formats, and downloads stored by the driver.

<store>/weights/<model and name>-<hash>/model.safetensors   downloaded once for all trials
<store>/weights/<path>-<hash>/<file>   copied with a root in an object store: nodes lack the path

A file has the keys of the encoder's `file_keys`: the library's keys for torchvision and timm.
"""

import hashlib
import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from mtcon_ray.base.paths import MODEL_FILE
from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.base.root_files import make_folder, write
from mtcon_ray.data.disk import build_folder, writable_store
from mtcon_ray.errors import CheckpointError
from mtcon_ray.models.encoders.base import ENCODERS, Encoder, SpecT
from mtcon_ray.spec.encoders import WeightsSpec

State = Mapping[str, Tensor]
FETCHED_FILE = "model.safetensors"
# Files with an encoder in a folder: of an export, of the Hugging Face hub, of a training.
FOLDER_FILES = ("weights.safetensors", FETCHED_FILE, MODEL_FILE)
WEIGHTS_FILE = "a file of PyTorch weights (a state dict saved by torch.save)"
# Keys of a checkpoint's encoder begin with this.
ENCODER = "encoder."
# Counter of batch norm, which files written by torch before 0.4.1 lack, also some of torchvision.
COUNTER = "num_batches_tracked"


def kept(store: Path, source: str) -> Path:
    """Returns the folder in the store for a download, which need not exist yet."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", source)
    return store / "weights" / f"{readable}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def keep(store: Path, source: str, fill: Callable[[Path], None]) -> None:
    """Creates the folder of a download with the files written by `fill(folder)`, unless it exists.

    Raises ResourceError if the store cannot be written, and all errors of `fill`.
    """
    folder = kept(store, source)
    with writable_store(store):
        make_folder(folder.parent)
        build_folder(folder, 0, fill)


def keep_copy(store: Path, weights: str) -> None:
    """Copies a file or folder of weights to the store. Raises ResourceError, CheckpointError."""

    def fill(folder: Path) -> None:
        write(folder / Path(weights).name, _file_in(Path(weights)).read_bytes())

    keep(store, weights, fill)


def fetched(spec: SpecT, store: Path | None) -> SpecT:
    """Returns the section with the paths of the downloads and copies that the store has."""
    if store is None:
        return spec
    weights = getattr(spec, "weights", None)
    if weights and (copy := kept(store, weights) / Path(weights).name).exists():
        spec = spec.model_copy(update={"weights": str(copy)})
    return ENCODERS[spec.name].with_fetched(spec, store)


def write_state(state: State, folder: Path) -> None:
    """Writes parameters to the file of a download."""
    # Copies, because safetensors refuses tensors that share memory or are not contiguous.
    whole = {k: v.clone(memory_format=torch.contiguous_format) for k, v in state.items()}
    save_file(whole, folder / FETCHED_FILE, {"format": "pt"})


def load_weights(
    encoder: Encoder, spec: WeightsSpec, download: Callable[[], State] | None = None
) -> None:
    """Loads the spec's weights. On the meta device it only checks if a file fits.

    `download` returns the parameters if `spec.weights` is a name. With `weights: null` nothing
    happens. Raises CheckpointError if a file cannot be read or does not fit, SpecError if a
    download fails.
    """
    weights, keys = spec.weights, encoder.file_keys()
    own = encoder.state_dict()
    is_meta = any(tensor.is_meta for tensor in own.values())
    is_name = spec.is_name(weights or "")
    if weights is None or (is_meta and is_name):
        return
    found = download() if download and is_name else read_weights(Path(weights), keys)
    state = {key: value for key, value in found.items() if not key.startswith(encoder.left_out)}
    wanted = {keys[key]: value for key, value in own.items()}
    state |= {k: v for k, v in wanted.items() if k.endswith(COUNTER) and k not in state}
    _check_fit(wanted, state, weights)
    if not is_meta:
        encoder.load_state_dict({key: state[keys[key]] for key in own})


def read_weights(path: Path, keys: Mapping[str, str]) -> State:
    """Returns an encoder's tensors in a file or folder of any format, by the keys of files.

    `keys` are the encoder's `file_keys`. Checkpoints have the keys of its state dict. No code of
    the file is run. Raises CheckpointError if the file is of no known format.
    """
    path = _file_in(path)
    try:
        open_regular(path).close()
    except OSError as error:
        raise _refused(f"{path} cannot be read: {error.strerror}") from error
    state = _read_safetensors(path) if path.suffix == ".safetensors" else _read_pickled(path)
    network = state.get("network") if isinstance(state, dict) else None
    if not isinstance(network, dict):
        return _checked(path, state)
    own = {k.removeprefix(ENCODER): v for k, v in network.items() if str(k).startswith(ENCODER)}
    return _checked(path, {keys.get(key, key): value for key, value in own.items()})


def _file_in(path: Path) -> Path:
    if not path.is_dir():
        return path
    there = [path / name for name in FOLDER_FILES if (path / name).is_file()]
    if not there:
        raise _refused(f"{path} is a folder without {', '.join(FOLDER_FILES)}")
    return there[0]


def _checked(path: Path, state: Any) -> State:
    items = state.items() if isinstance(state, dict) else [(state, state)]
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in items):
        raise _refused(f"{path} holds something other than tensors by name")
    found: State = state
    return found


def _check_fit(ours: State, state: State, weights: str) -> None:
    """Raises CheckpointError if a file differs from the layers in names or shapes.

    Also raises it for complex numbers: a layer would take their real parts.
    """
    if imaginary := next((key for key in state if state[key].is_complex()), None):
        raise CheckpointError(
            f"model.encoder.weights must hold real numbers, got complex ones in {imaginary} of "
            f"{weights}; choose a file of real weights"
        )
    missing = [key for key in ours if key not in state]
    unexpected = [key for key in state if key not in ours]
    wrong = [key for key in ours if key in state and ours[key].shape != state[key].shape]
    problems = [
        f"{what} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for what, keys in (("missing", missing), ("unexpected", unexpected))
        if keys
    ]
    if wrong:
        shapes = [list(tensors[wrong[0]].shape) for tensors in (state, ours)]
        problems.append(f"{wrong[0]} of shape {shapes[0]} where the encoder has {shapes[1]}")
    if problems:
        raise CheckpointError(
            f"model.encoder.weights: {weights} does not fit the encoder: {'; '.join(problems)}; "
            "choose the encoder name and settings that the file was made with"
        )


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise _refused(f"{path} is not a whole safetensors file ({error})") from error


def _read_pickled(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds of errors for files of other formats
        # torch's own message is left out: it suggests weights_only=False, which runs the file's
        # code.
        if isinstance(error, pickle.UnpicklingError) and is_zipfile(path):
            problem = f"{path} holds more than plain tensors"
        else:
            what = "an empty file, " if path.stat().st_size == 0 else ""
            problem = f"{path} is {what}not {WEIGHTS_FILE}"
        raise _refused(problem) from error


def _refused(problem: str) -> CheckpointError:
    return CheckpointError(
        f"model.encoder.weights: {problem}; write one with torch.save(model.state_dict(), path)"
    )
