"""ResNet-18 and ResNet-50 without their classifier, with torchvision's names of layers.

torchvision is imported only where its weights are asked for, since that takes seconds.
"""

import pickle
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self
from zipfile import is_zipfile

import torch
from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from torch import Tensor, nn

from mtcon_ray.errors import CheckpointError, SpecError
from mtcon_ray.models.encoders.base import ENCODERS, Encoder, EncoderSpec
from mtcon_ray.models.encoders.residual import Block, Bottleneck, conv_norm, initialise, stage
from mtcon_ray.registry import PathMark, beside_the_spec, is_word

if TYPE_CHECKING:
    from torchvision.models import WeightsEnum

WEIGHTS_FILE = "a file of PyTorch weights (a state dict saved by torch.save)"


def _weights(value: str, info: ValidationInfo) -> str:
    if value == "imagenet":
        return value
    path = beside_the_spec(value, info)
    if is_word(value) and not Path(path).exists():
        raise ValueError(
            f"weights must be null, imagenet (torchvision's IMAGENET1K_V1) or the path of a "
            f"state-dict file, got {value!r}, which is no file"
        )
    return path


class ResNetSpec(EncoderSpec):
    """Fields common to both ResNets."""

    weights: Annotated[str, AfterValidator(_weights), PathMark()] | None = Field(
        None,
        description="null: random; imagenet: torchvision's IMAGENET1K_V1, downloaded when training "
        "starts; else the path of a state-dict file, which is checked before",
    )
    stem: Literal["imagenet", "small"] = Field(
        "imagenet", description="small: 3x3 of stride 1 and no pooling, for images below 64 pixels"
    )

    @model_validator(mode="after")
    def _stem_fits_the_weights(self) -> Self:
        if self.weights == "imagenet" and self.stem == "small":
            raise ValueError(
                "stem must be imagenet where weights is imagenet, got small; "
                "drop weights, or name a state-dict file of a network with the small stem"
            )
        return self

    @property
    def is_random(self) -> bool:
        return self.weights is None

    @property
    def is_checked_by_building(self) -> bool:
        return self.weights is not None

    def fetch_weights(self) -> None:
        if self.weights == "imagenet":
            _download(self.name)


class _ResNet(Encoder):
    block: ClassVar[type[Block | Bottleneck]]
    blocks: ClassVar[tuple[int, ...]]  # of each stage

    def __init__(self, spec: ResNetSpec) -> None:
        super().__init__(spec)
        num_stages = spec.stages if isinstance(spec, ResNet18.Spec) else len(self.blocks)
        self.net = _Layers(self.block, self.blocks[:num_stages], spec.stem)
        self.width = self.net.width
        if spec.weights is not None:
            _load(self.net, spec.name, spec.weights)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns features after the average pooling, [N, width]."""
        h_NDHW: Tensor = self.net(x_NCHW)
        return h_NDHW.mean(dim=(2, 3))


class _Layers(nn.Sequential):
    """The layers between image and pooling; stage i, from 1, is named layer<i>."""

    def __init__(self, block: type[Block | Bottleneck], blocks: Sequence[int], stem: str) -> None:
        kernel, stride = (7, 2) if stem == "imagenet" else (3, 1)
        conv, norm = conv_norm(3, 64, kernel=kernel, stride=stride)
        layers: dict[str, nn.Module] = {"conv1": conv, "bn1": norm, "relu": nn.ReLU(inplace=True)}
        if stem == "imagenet":
            layers["maxpool"] = nn.MaxPool2d(3, stride=2, padding=1)
        before = 64
        for number, num_blocks in enumerate(blocks, 1):
            width, stride = 64 * 2 ** (number - 1), min(number, 2)
            layers[f"layer{number}"] = stage(
                block, before, width, num_blocks=num_blocks, stride=stride
            )
            before = width * block.widening
        super().__init__(OrderedDict(layers))
        self.width = before
        initialise(self)


@ENCODERS.register("resnet18")
class ResNet18(_ResNet):
    """ResNet-18 with 512 features, or 256 after three stages: He et al. 2016, arXiv:1512.03385."""

    block = Block
    blocks = (2, 2, 2, 2)

    class Spec(ResNetSpec):
        """torchvision's ResNet-18."""

        name: Literal["resnet18"] = "resnet18"
        stages: Literal[3, 4] = Field(
            4, description="3: end after the third stage with 256 features, as CSN does"
        )


@ENCODERS.register("resnet50")
class ResNet50(_ResNet):
    """ResNet-50 with 2048 features: He et al. 2016, arXiv:1512.03385."""

    block = Bottleneck
    blocks = (3, 4, 6, 3)

    class Spec(ResNetSpec):
        """torchvision's ResNet-50."""

        name: Literal["resnet50"] = "resnet50"


def _load(net: _Layers, name: str, weights: str) -> None:
    """Loads a spec's weights; on the meta device it only checks that a file fits the layers.

    Raises CheckpointError for a file that cannot be read or does not fit, SpecError if the
    download fails.
    """
    is_meta = next(net.parameters()).is_meta
    if weights == "imagenet":
        if is_meta:
            return
        state = _download(name)
    else:
        state = _read(Path(weights))
    left_out = ("fc.",) if hasattr(net, "layer4") else ("fc.", "layer4.")
    state = {key: value for key, value in state.items() if not key.startswith(left_out)}
    _check_fit(net.state_dict(), state, weights)
    if not is_meta:
        net.load_state_dict(state)


def _check_fit(ours: Mapping[str, Tensor], state: Mapping[str, Tensor], weights: str) -> None:
    """Raises CheckpointError if names or shapes of a file differ from those of the layers."""
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
            f"model.encoder.weights must fit the encoder, got {weights}: {'; '.join(problems)}; "
            "choose the encoder name and stem that the file was made with"
        )


def _download(name: str) -> Mapping[str, Tensor]:
    from torchvision.models import get_model_weights

    imagenet: WeightsEnum = get_model_weights(name)["IMAGENET1K_V1"]
    try:
        state: Mapping[str, Tensor] = imagenet.get_state_dict(progress=False, check_hash=True)
        return state
    # A truncated download has the wrong hash, a RuntimeError; no network or a full disk, OSError.
    except (OSError, RuntimeError) as error:
        raise SpecError(
            f"model.encoder.weights: imagenet needs {imagenet.url}, which cannot be had: {error}; "
            "fetch that file elsewhere and set model.encoder.weights to its path"
        ) from error


def _read(path: Path) -> Mapping[str, Tensor]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises many kinds of errors for files of other formats
        # torch's own message is left out: it suggests weights_only=False, which runs the file's
        # code.
        if isinstance(error, OSError) and error.strerror:
            problem = f"{path} cannot be read: {error.strerror}"
        elif isinstance(error, pickle.UnpicklingError) and is_zipfile(path):
            problem = f"{path} holds more than plain tensors"
        else:
            what = "an empty file, " if path.stat().st_size == 0 else ""
            problem = f"{path} is {what}not {WEIGHTS_FILE}"
        raise _refused(problem) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise _refused(f"{path} holds something else than tensors by name")
    return state


def _refused(problem: str) -> CheckpointError:
    return CheckpointError(
        f"model.encoder.weights: {problem}; write one with torch.save(model.state_dict(), path)"
    )
