"""ResNet-18 and ResNet-50 without their classifier, with torchvision's names of layers.

torchvision is imported only where its weights are asked for, since that takes seconds.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from mtcon_ray.models.encoders.base import ENCODERS, Encoder
from mtcon_ray.models.encoders.residual import Block, Bottleneck, conv_norm, initialise, stage
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


class _ResNet(Encoder):
    block: ClassVar[type[Block | Bottleneck]]
    blocks: ClassVar[tuple[int, ...]]  # of each stage

    def __init__(self, spec: ResNetSpec) -> None:
        super().__init__(spec)
        num_stages = spec.stages if isinstance(spec, ResNet18.Spec) else len(self.blocks)
        self.net = _Layers(self.block, self.blocks[:num_stages], spec.stem)
        self.width = self.net.width
        self.left_out = ("fc.", *(f"layer{i}." for i in range(num_stages + 1, 5)))
        load_weights(self, spec)

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

        names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1")

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

        names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1", "IMAGENET1K_V2")

        name: Literal["resnet50"] = "resnet50"
