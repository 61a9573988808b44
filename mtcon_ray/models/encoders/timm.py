"""Backbones of the optional library timm, such as MultiSupCon's TResNet-M, or of the hub by timm.

TResNet: Ridnik et al. 2020, arXiv:2003.13630.
"""

from typing import Any, cast

import torch
from torch import nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.base import LibraryEncoder, State, load_weights
from mtcon_ray.spec.encoders import TimmSpec


class Timm(LibraryEncoder):
    """A timm model without its classifier.

    Layers that combine batch norm and activation are split in two. Their batch norm is then
    torch's own: several workers can share its moments.

    Raises SpecError if timm is not installed or has no such model, or if the description of a model
    of the hub cannot be downloaded.
    """

    @classmethod
    def download(cls, spec: TimmSpec) -> State:
        # Drawing random parameters must not change the parameters of the heads.
        with torch.random.fork_rng(devices=[]):
            net = _create(spec, pretrained=True)
        net.reset_classifier(0)
        return cast(State, net.state_dict())

    def __init__(self, spec: TimmSpec) -> None:
        super().__init__(spec)
        net = _create(spec, num_classes=0)
        classifiers = net.pretrained_cfg.get("classifier") or ()
        names = (classifiers,) if isinstance(classifiers, str) else classifiers
        self.left_out = tuple(f"{name}." for name in names)
        self.net = _split(net)
        self.width: int = net.head_hidden_size
        load_weights(self, spec)

    def file_keys(self) -> dict[str, str]:
        """Returns timm's keys, in which split layers are a single layer."""
        split = {name for name, module in self.named_modules() if isinstance(module, NormAct)}

        def theirs(key: str) -> str:
            layer, _, parameter = key.rpartition(".0.")
            return f"{layer}.{parameter}" if layer in split else key

        return {key: theirs(key).removeprefix("net.") for key in self.state_dict()}


class NormAct(nn.Sequential):
    """A batch norm, its dropout and its activation, a single layer in timm."""


def _split(module: nn.Module) -> nn.Module:
    """Returns the module, with each BatchNormAct2d replaced by a batch norm and the activation."""
    for name, child in module.named_children():
        layer: Any = child
        if not (isinstance(child, nn.BatchNorm2d) and hasattr(child, "act")):
            _split(child)
            continue
        norm = nn.BatchNorm2d(layer.num_features, layer.eps, layer.momentum)
        # The same parameters, because their initial values are timm's.
        norm.weight, norm.bias = layer.weight, layer.bias
        module.add_module(name, NormAct(norm, layer.drop, layer.act))
    return module


def _create(spec: TimmSpec, **options: Any) -> Any:
    """Returns timm's model. Errors of timm, the network and the disk become SpecError."""
    try:
        import timm

        return timm.create_model(spec.model, **options)
    except ImportError as error:
        raise SpecError(
            f"model.encoder.name timm needs the package timm, which cannot be imported: "
            f"{error}; install it with: pip install 'mtcon-ray[timm]'"
        ) from error
    # Unknown tags and damaged files are RuntimeErrors, unknown prefixes and names of the hub
    # ValueErrors, before timm 1.0.29 AssertionErrors, descriptions without a field KeyErrors.
    except (OSError, RuntimeError, ValueError, AssertionError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SpecError(
            f"model.encoder: timm cannot provide model {spec.model} with weights {spec.weights}: "
            f"{reason}; write one of timm.list_models() or hf-hub:OWNER/NAME, with a connection to "
            "the hub or the files in its cache, or set weights to the path of a file"
        ) from error
