"""Classification networks of torchvision by name, without their classifier.

torchvision is imported only where a network is built or downloaded: the import takes seconds.
"""

import re
from difflib import get_close_matches
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.base import ENCODERS
from mtcon_ray.models.encoders.library import LibraryEncoder, build
from mtcon_ray.models.encoders.weights import FILES, PublishedSpec, State, Weights, load_weights

# A second name of the first weights of each network.
IMAGENET = "imagenet"
FIRST = "IMAGENET1K_V1"
NUM_CLASSES = 1000
# Networks with auxiliary classifiers, which return several outputs in training.
AUXILIARY = ("googlenet", "inception_v3")


class TorchvisionSpec(PublishedSpec):
    """Fields common to encoders with initial weights of torchvision's `network`."""

    weights: Weights = Field(
        None,
        description="random (null), torchvision's IMAGENET1K_V1 (imagenet) or a name of its "
        f"weights, downloaded once before training starts, or the path of {FILES}",
    )

    @property
    def network(self) -> str:
        """torchvision's name of the network."""
        return self.name

    @property
    def source(self) -> str:
        return f"torchvision {self.network} {FIRST if self.weights == IMAGENET else self.weights}"

    def download(self) -> State:
        return download(self.network, str(self.weights))


@ENCODERS.register("torchvision")
class Torchvision(LibraryEncoder):
    """A network of torchvision.models without its classifier. Features are the classifier's input.

    Raises SpecError if torchvision has no such network or no weights of this name.
    """

    class Spec(TorchvisionSpec):
        """A classification network of torchvision, such as ConvNeXt, Swin or another ResNet."""

        names: ClassVar[tuple[str, ...]] = (IMAGENET, FIRST, "another name of torchvision's")

        name: Literal["torchvision"] = "torchvision"
        model: str = Field(
            "resnet34",
            min_length=1,
            description="torchvision's name of a classification network, such as convnext_tiny",
        )

        @classmethod
        def is_name(cls, value: str) -> bool:
            return value == IMAGENET or re.fullmatch(r"IMAGENET1K_\w+|DEFAULT", value) is not None

        @property
        def is_checked_by_building(self) -> bool:
            return True

        @property
        def network(self) -> str:
            return self.model

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        import torchvision.models as published

        models = [m for m in published.list_models(module=published) if m not in AUXILIARY]
        if spec.model not in models:
            near = get_close_matches(spec.model, models)
            raise SpecError(
                f"model.encoder.model must be a network of torchvision with one classifier, got "
                f"{spec.model!r}; near it: {', '.join(near) or 'none'} "
                "(torchvision.models.list_models(torchvision.models))"
            )
        if spec.weights is not None and spec.is_name(spec.weights):
            _published(spec.model, spec.weights)
        self.net = build(lambda: published.get_model(spec.model, weights=None))
        self.width, classifier = _remove_classifier(self.net)
        self.left_out = (f"{classifier}.",)
        load_weights(self, spec)


def _remove_classifier(net: nn.Module) -> tuple[int, str]:
    """Replaces the last linear layer by the identity. Returns the width of its input, its name.

    Layers before it in the classifier stay, such as ConvNeXt's norm. SqueezeNet's last layer is a
    convolution, followed by its pooling.
    """
    layers = [(k, m) for k, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    name, last = layers[-1]
    width, classes = last.weight.shape[1], last.weight.shape[0]
    assert classes == NUM_CLASSES, f"the last layer {name} has {classes} outputs"
    net.set_submodule(name, nn.Identity())
    return width, name


def download(model: str, weights: str) -> State:
    """Returns published parameters by torchvision's keys, from its cache or by a download.

    Raises SpecError if no weights of this name exist or they cannot be downloaded.
    """
    from torchvision.models import get_model

    found = _published(model, weights)
    try:
        # The network and not the file, since keys of old files are renamed on loading. It draws
        # random parameters first, which must not change the parameters of the heads.
        with torch.random.fork_rng(devices=[]):
            state: State = get_model(model, weights=found, progress=False).state_dict()
        return state
    # A truncated download has the wrong hash (RuntimeError). No network or a full disk: OSError.
    except (OSError, RuntimeError) as error:
        raise SpecError(
            f"model.encoder.weights: {weights} needs {found.url}, which cannot be had: {error}; "
            "fetch that file elsewhere and set model.encoder.weights to its path"
        ) from error


def _published(model: str, weights: str) -> Any:
    from torchvision.models import get_model_weights

    names = get_model_weights(model).__members__
    name = FIRST if weights == IMAGENET else weights
    if name not in names:
        raise SpecError(
            f"model.encoder.weights must be one of torchvision's for {model}, "
            f"{' or '.join(names)}, got {weights}"
        )
    return names[name]
