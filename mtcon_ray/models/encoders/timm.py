"""Convolutional backbones of the optional library timm, such as MultiSupCon's TResNet-M.

TResNet: Ridnik et al. 2020, arXiv:2003.13630.
"""

from difflib import get_close_matches
from typing import Any, Literal

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.base import ENCODERS, Encoder, EncoderSpec


@ENCODERS.register("timm")
class Timm(Encoder):
    """A timm model without its classifier, with random parameters.

    Layers that combine batch norm and activation are split in two. Their batch norm is then
    torch's own, so that several workers can share its moments.

    Raises SpecError if timm is not installed or has no such model.
    """

    class Spec(EncoderSpec):
        """A backbone of timm; needs the extra `timm`."""

        name: Literal["timm"] = "timm"
        model: str = Field(
            "tresnet_m",
            min_length=1,
            description="timm's name of a model that takes any image size; tresnet_m: TResNet-M",
        )

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec)
        try:
            import timm
        except ImportError as error:
            raise SpecError(
                f"model.encoder.name timm needs the package timm, which cannot be imported: "
                f"{error}; install it with: pip install 'mtcon-ray[timm]'"
            ) from error
        if not timm.is_model(spec.model):
            near = get_close_matches(spec.model, timm.list_models())
            raise SpecError(
                f"model.encoder.model must be a model of timm {timm.__version__}, got "
                f"{spec.model!r}; near it: {', '.join(near) or 'none'} (timm.list_models())"
            )
        self.net = _split(timm.create_model(spec.model, pretrained=False, num_classes=0))
        self.width = self.net.head_hidden_size

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns pooled features, [N, width]."""
        h_ND: Tensor = self.net(x_NCHW)
        return h_ND


def _split(module: nn.Module) -> Any:
    """Returns the module, with each BatchNormAct2d replaced by a batch norm and the activation."""
    from timm.layers import BatchNormAct2d

    for name, child in module.named_children():
        if not isinstance(child, BatchNormAct2d):
            _split(child)
            continue
        norm = nn.BatchNorm2d(child.num_features, child.eps, child.momentum)
        # The same parameters, so that their initial values are timm's.
        norm.weight, norm.bias = child.weight, child.bias
        module.add_module(name, nn.Sequential(norm, child.drop, child.act))
    return module
