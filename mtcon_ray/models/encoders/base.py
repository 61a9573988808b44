"""Base classes of the encoders, which map an image to a pooled feature vector, and their weights.

Initial parameters are in files of several formats, or are downloads stored by the driver:

<store>/weights/<model and name>-<hash>/model.safetensors   downloaded once for all trials
<store>/weights/<path>-<hash>/<file>   copied with a root in an object store: nodes lack the path

A file has the keys of the encoder's `file_keys`: the library's keys for torchvision and timm.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any, cast
from zipfile import ZipFile, is_zipfile

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mtcon_ray.base.registry import Configured, Table
from mtcon_ray.base.regular_file import check_stored, open_regular
from mtcon_ray.base.root_files import write
from mtcon_ray.data.disk import build_folder
from mtcon_ray.errors import CheckpointError, SpecError
from mtcon_ray.spec.encoders import ENCODERS as SPECS, EncoderSpec, WeightsSpec

State = Mapping[str, Tensor]
FETCHED_FILE = "model.safetensors"
# Keys of a checkpoint's encoder, and of its embedding layer among them, begin with these.
ENCODER, EMBEDDING = "encoder.", "embedding_layer."


class Encoder(Configured, nn.Module, ABC):
    """Base of encoders, which map [N, 3, H, W] to features [N, width].

    `Spec` is the section, which names the class in ENCODERS. A plugin registers its class there and
    nests its `Spec`. `spec` is the section of this encoder.

    `left_out` has the prefixes of unused keys in files of weights, such as the keys of the
    classifier.

    `embedding_layer` maps pooled features to the features. Without `add_embedding` it changes
    nothing.
    """

    width: int
    left_out: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, spec: EncoderSpec) -> None:
        """Builds the layers. Their values come from torch's global generator, so seed it before.

        On the meta device, `weights` of the spec are only checked against the layers, and nothing
        is downloaded.
        """
        super().__init__()
        self.spec: Any = spec
        self.embedding_layer: nn.Module = nn.Identity()

    def add_embedding(self, dim: int) -> None:
        """Appends a linear layer, [N, width] to [N, dim], to each later call. Changes `width`.

        CCN (Mu and Guttag 2022) has its heads on an embedding of 128 numbers and probes it. The
        initial values come from torch's global generator, never from a file of weights.
        """
        self.embedding_layer, self.width = nn.Linear(self.width, dim), dim
        # With the encoder of the call: a copy of the network must use its own layer.
        self.register_forward_hook(lambda encoder, _, h_ND: encoder.embedding_layer(h_ND))

    def file_keys(self) -> dict[str, str]:
        """Returns the keys in files of weights by the keys of the state dict.

        An encoder with the model of another library as `net` has the model's keys.
        """
        return {key: key.removeprefix("net.") for key in self.state_dict()}

    @classmethod
    def download(cls, spec: Any) -> State:
        """Returns the parameters named by `spec.weights`, by the keys of files.

        Reads the library's own cache where it has them. Raises SpecError if the download fails.
        """
        raise NotImplementedError

    def check_images(self, view_size: int) -> None:
        """Raises SpecError if the encoder refuses images with sides of `view_size` pixels.

        Called on the meta device, for encoders whose section is checked by building.
        """


class LibraryEncoder(Encoder):
    """An encoder of another library. Its model `net` maps [N, 3, H, W] to pooled [N, width]."""

    net: nn.Module

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns pooled features, [N, width]."""
        return cast(Tensor, self.net(x_NCHW))

    def check_images(self, view_size: int) -> None:
        try:
            with torch.no_grad():
                self.eval()(torch.empty(2, 3, view_size, view_size))
        except NotImplementedError:
            return  # an operation without an implementation on the meta device
        # Libraries raise errors of many types for images of an unsuitable size.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(
                f"views.size must be a size of images that the encoder's model takes, got "
                f"{view_size}: {reason}; take another size or model"
            ) from error


# The table of the sections, typed by what ENCODERS["name"] returns: the class of an encoder.
ENCODERS: Table[Encoder] = SPECS


def fetch_weights(spec: EncoderSpec, store: Path, *, copies: bool = False) -> None:
    """Downloads the initial parameters into the store if the spec asks for a download.

    Called once by the driver, before processes on other nodes build the encoder. With `copies` also
    copies a file of weights there. Raises SpecError if a download fails, ResourceError if the store
    cannot be written.
    """
    if not isinstance(spec, WeightsSpec) or spec.weights is None:
        return
    weights, is_name = spec.weights, spec.is_name(spec.weights)

    def fill(folder: Path) -> None:
        if is_name:
            state = ENCODERS[spec.name].download(spec)
            # Copies, because safetensors refuses tensors that share memory or are not contiguous.
            whole = {k: v.clone(memory_format=torch.contiguous_format) for k, v in state.items()}
            save_file(whole, folder / FETCHED_FILE, {"format": "pt"})
        else:
            write(folder / Path(weights).name, Path(weights).read_bytes())

    if is_name or copies:
        build_folder(_stored(spec, store).parent, 0, fill)


def fetched(spec: EncoderSpec, store: Path | None) -> EncoderSpec:
    """Returns the section with the path of the download or copy that the store has."""
    if store is None or not isinstance(spec, WeightsSpec) or spec.weights is None:
        return spec
    path = _stored(spec, store)
    return spec.model_copy(update={"weights": str(path)}) if path.exists() else spec


def _stored(spec: WeightsSpec, store: Path) -> Path:
    """Returns the path in the store for a download or a copy, which need not exist yet."""
    source = str(spec.weights)
    file = Path(source).name
    if spec.is_name(source):
        source, file = spec.source, FETCHED_FILE
    readable = re.sub(r"[^A-Za-z0-9]+", "-", source)
    digest = hashlib.sha256(source.encode()).hexdigest()[:8]
    return store / "weights" / f"{readable}-{digest}" / file


def load_weights(encoder: Encoder, spec: WeightsSpec) -> None:
    """Loads the spec's weights. On the meta device it only checks if a file fits.

    With `weights: null` nothing happens. Raises CheckpointError if a file cannot be read or does
    not fit, SpecError if a download fails.
    """
    weights, device = spec.weights, next(encoder.parameters()).device
    is_name = weights is not None and spec.is_name(weights)
    if weights is None or (is_name and device.type == "meta"):
        return
    found = encoder.download(spec) if is_name else read_weights(Path(weights))
    own = {theirs: ours for ours, theirs in encoder.file_keys().items()}
    left_out = (*encoder.left_out, EMBEDDING)
    kept = {key: value for key, value in found.items() if not key.startswith(left_out)}
    state = {own.get(key, key): value.to(device) for key, value in kept.items()}
    try:
        if any(value.is_complex() for value in state.values()):
            # A layer would take their real parts.
            raise RuntimeError("weights\nthe file must hold real numbers, got complex ones")
        encoder.load_state_dict(state)
    except RuntimeError as error:
        # Each line lists missing or unexpected keys, or a key of another shape.
        problems = [shorten(line, 200) for line in str(error).splitlines()[1:4]]
        raise CheckpointError(
            f"model.encoder.weights: {weights} does not fit the encoder: "
            f"{'; '.join(problems)}; choose the encoder name and settings that the file was made "
            "with"
        ) from error


def read_weights(path: Path) -> State:
    """Returns an encoder's tensors in a file of any format.

    The keys are the encoder's `file_keys`, and in checkpoints the keys of its state dict. No code
    of the file is run. Raises CheckpointError if the file is of no known format.
    """
    state: Any
    try:
        open_regular(path).close()
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            if is_zipfile(path):  # older versions of torch wrote no zip
                with ZipFile(path) as file:
                    check_stored(file)
            state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise _refused(f"{path} cannot be read: {error.strerror or error}") from error
    # Both raise many kinds of errors for files of other formats. torch's own message is left out:
    # it suggests weights_only=False, which runs the file's code.
    except Exception as error:
        raise _refused(f"{path} is not a whole file of plain tensors, not compressed") from error
    network = state.get("network") if isinstance(state, dict) else None
    if isinstance(network, dict):
        named = {str(key): value for key, value in network.items()}
        state = {k.removeprefix(ENCODER): v for k, v in named.items() if k.startswith(ENCODER)}
    items = state.items() if isinstance(state, dict) else [(state, state)]
    if not all(isinstance(key, str) and isinstance(value, Tensor) for key, value in items):
        raise _refused(f"{path} holds something other than tensors by name")
    return dict(state)


def _refused(problem: str) -> CheckpointError:
    return CheckpointError(
        f"model.encoder.weights: {problem}; write one with torch.save(model.state_dict(), path)"
    )
