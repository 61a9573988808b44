"""Classification networks of torchvision without their classifier.

ResNet-18 and ResNet-50 also have a stem for small images. torchvision is imported only where a
network is built or downloaded: the import takes seconds.
"""

from typing import Any

import torch
from torch import nn

from mtcon_ray.errors import SpecError, nearest
from mtcon_ray.models.encoders.base import LibraryEncoder, State, load_weights
from mtcon_ray.models.encoders.small import draw_convolutions
from mtcon_ray.spec import encoders

NUM_CLASSES = 1000
# Networks with auxiliary classifiers, which return several outputs in training.
AUXILIARY = ("googlenet", "inception_v3")


def published() -> Any:
    """Returns torchvision.models, whose import takes seconds."""
    import torchvision.models

    return torchvision.models


class TorchvisionEncoder(LibraryEncoder):
    """Base class of the networks of torchvision."""

    @classmethod
    def download(cls, spec: encoders.WeightsSpec) -> State:
        found = _published(spec.network, str(spec.weights))
        try:
            # The network and not the file, since keys of old files are renamed on loading. It draws
            # random parameters first, which must not change the parameters of the heads.
            with torch.random.fork_rng(devices=[]):
                net: nn.Module = published().get_model(spec.network, weights=found, progress=False)
            return net.state_dict()
        # A truncated download has the wrong hash (RuntimeError). No network, full disk: OSError.
        except (OSError, RuntimeError) as error:
            raise SpecError(
                f"model.encoder.weights: cannot download {spec.weights} from {found.url}: {error}; "
                "fetch that file elsewhere and set model.encoder.weights to its path"
            ) from error


class Torchvision(TorchvisionEncoder):
    """A network of torchvision.models without its classifier. Features are the classifier's input.

    Raises SpecError if torchvision has no such network or no weights of this name.
    """

    def __init__(self, spec: encoders.TorchvisionSpec) -> None:
        super().__init__(spec)
        library = published()
        models = {*library.list_models(module=library)}.difference(AUXILIARY)
        if spec.model not in models:
            raise SpecError(
                f"model.encoder.model must be a network of torchvision with one classifier, got "
                f"{spec.model!r}{nearest(spec.model, models)}"
            )
        options = {}
        if spec.weights is not None and spec.is_name(spec.weights):
            found = _published(spec.model, spec.weights)
            if spec.model.startswith("vit_"):  # some weights are of larger images
                options = {"image_size": found.meta["min_size"][0]}
        try:
            net = library.get_model(spec.model, **options)
        except NotImplementedError:
            # Some models, such as RegNet, read tensors while they are built. The meta device does
            # not allow this.
            with torch.device("cpu"):
                net = library.get_model(spec.model, **options)
        self.net = net.to(torch.get_default_device())
        self.width, classifier = _remove_classifier(self.net)
        self.left_out = (f"{classifier}.",)
        load_weights(self, spec)


class _ResNet(TorchvisionEncoder):
    def __init__(self, spec: encoders.ResNetSpec) -> None:
        super().__init__(spec)
        # On the meta device no weights are drawn, so removed layers do not change a seed's weights.
        with torch.device("meta"):
            net = published().get_model(spec.name)
            if spec.stem == "small":
                net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        self.width, self.left_out = net.fc.in_features, ("fc.",)
        net.fc = nn.Identity()
        if isinstance(spec, encoders.ResNet18Spec) and spec.stages == 3:
            self.width, self.left_out = 256, ("fc.", "layer4.")
            net.layer4 = nn.Identity()
        self.net = net.to_empty(device=torch.get_default_device())
        for module in net.modules():
            # This draws convolutions too. Without it, the weights of every seed would change.
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                module.reset_parameters()
        draw_convolutions(net)
        load_weights(self, spec)


class ResNet18(_ResNet):
    """ResNet-18 with 512 features, or 256 after three stages: He et al. 2016, arXiv:1512.03385."""


class ResNet50(_ResNet):
    """ResNet-50 with 2048 features: He et al. 2016, arXiv:1512.03385."""


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


def _published(model: str, weights: str) -> Any:
    names = published().get_model_weights(model).__members__
    name = encoders.FIRST if weights == encoders.IMAGENET else weights
    if name not in names:
        raise SpecError(
            f"model.encoder.weights must be one of torchvision's for {model}, "
            f"{' or '.join(names)}, got {weights}"
        )
    return names[name]
