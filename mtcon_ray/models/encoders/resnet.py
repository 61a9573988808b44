"""ResNet-18 and ResNet-50 of torchvision without classifier, also with a stem for small images.

torchvision is imported where a network is built, because the import takes seconds.
"""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from mtcon_ray.models.encoders.base import ENCODERS
from mtcon_ray.models.encoders.library import LibraryEncoder
from mtcon_ray.models.encoders.small import draw_convolutions
from mtcon_ray.models.encoders.torchvision import TorchvisionSpec
from mtcon_ray.models.encoders.weights import load_weights


class ResNetSpec(TorchvisionSpec):
    """Fields common to both ResNets."""

    stem: Literal["imagenet", "small"] = Field(
        "imagenet", description="small: 3x3 of stride 1 and no pooling, for images below 64 pixels"
    )

    @model_validator(mode="after")
    def _stem_fits_the_weights(self) -> Self:
        if self.weights is not None and self.is_name(self.weights) and self.stem == "small":
            raise ValueError(
                f"stem must be imagenet where weights is {self.weights}, got small; "
                "drop weights, or name a state-dict file of a network with the small stem"
            )
        return self


class _ResNet(LibraryEncoder):
    def __init__(self, spec: ResNetSpec) -> None:
        super().__init__(spec)
        from torchvision.models import get_model

        device = torch.get_default_device()
        # On the meta device no weights are drawn, so removed layers do not change a seed's weights.
        with torch.device("meta"):
            net = get_model(spec.name)
            if spec.stem == "small":
                net.conv1, net.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        self.width, self.left_out = net.fc.in_features, ("fc.",)
        net.fc = nn.Identity()
        if isinstance(spec, ResNet18.Spec) and spec.stages == 3:
            self.width, self.left_out = 256, ("fc.", "layer4.")
            net.layer4 = nn.Identity()
        self.net = net.to_empty(device=device)
        for module in net.modules():
            # This draws convolutions too. Without it, the weights of every seed would change.
            if isinstance(module, nn.Conv2d | nn.BatchNorm2d):
                module.reset_parameters()
        draw_convolutions(net)
        load_weights(self, spec)


@ENCODERS.register("resnet18")
class ResNet18(_ResNet):
    """ResNet-18 with 512 features, or 256 after three stages: He et al. 2016, arXiv:1512.03385."""

    class Spec(ResNetSpec):
        """torchvision's ResNet-18."""

        names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1")

        name: Literal["resnet18"] = "resnet18"
        stages: Literal[3, 4] = Field(
            4, description="3: end after the third stage with 256 features, as CSN does"
        )


@ENCODERS.register("resnet50")
class ResNet50(_ResNet):
    """ResNet-50 with 2048 features: He et al. 2016, arXiv:1512.03385."""

    class Spec(ResNetSpec):
        """torchvision's ResNet-50."""

        names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1", "IMAGENET1K_V2")

        name: Literal["resnet50"] = "resnet50"
