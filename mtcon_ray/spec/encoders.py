"""The `model` section: the fields of all encoders, and the projection heads."""

import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from mtcon_ray.base import registry
from mtcon_ray.base.registry import Choice, NamedSpec, PathMark, Spec, Table, Text

ENCODERS: Table[Any] = Table("encoder")
FILES = "a state-dict or safetensors file, or a model.pt of this program"
# A second name of the first weights of each network.
IMAGENET = "imagenet"
FIRST = "IMAGENET1K_V1"


class EncoderSpec(NamedSpec):
    """Fields common to the sections of all encoders. Each encoder adds further fields.

    `has_batch_norm` is False if the features of an image do not depend on the rest of the batch.
    """

    has_batch_norm: ClassVar[bool] = True

    @property
    def is_random(self) -> bool:
        """True if the features before training depend on the seed."""
        return getattr(self, "weights", None) is None

    @property
    def is_checked_by_building(self) -> bool:
        """True if building the encoder may refuse this section. `validate` then builds it."""
        return True

    def check(self, view_size: int) -> None:
        """Raises ValueError if views with sides of `view_size` pixels cannot be encoded."""


@ENCODERS.declare("handcrafted", "mtcon_ray.models.encoders.handcrafted:Handcrafted")
class HandcraftedSpec(EncoderSpec):
    """Fixed image features, for `method: {name: none}` or for a trained head on them."""

    has_batch_norm: ClassVar[bool] = False
    is_random: ClassVar[bool] = False


class WeightsSpec(EncoderSpec):
    """Fields common to all encoders with parameters.

    `names` are the values of `weights` for a download, from `library`.
    """

    library: ClassVar[str] = ""
    names: ClassVar[tuple[str, ...]] = ()

    weights: Annotated[str, PathMark] | None = Field(
        None,
        description=f"random (null), the path of {FILES}, or published weights, downloaded once "
        "before training starts: IMAGENET1K_V1 (imagenet) or another name for a network of "
        "torchvision, pretrained for a model of timm or the hub",
    )

    @field_validator("weights")
    @classmethod
    def _name_or_path(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None or cls.is_name(value):
            return value
        path = registry.beside_the_spec(value, info)
        if registry.is_word(value) and not Path(path).exists():
            raise ValueError(
                f"weights must be {', '.join(('null', *cls.names))} or the path of {FILES}, got "
                f"{value!r}, which is not a file"
            )
        return path

    @classmethod
    def is_name(cls, value: str) -> bool:
        """Returns True if the text names a download and is not a path."""
        return value in cls.names

    @property
    def network(self) -> str:
        """The library's name of the network."""
        return str(getattr(self, "model", self.name))

    @property
    def source(self) -> str:
        """Text that identifies the weights of a name, and names their folder in the store."""
        weights = FIRST if self.weights == IMAGENET else self.weights
        return f"{self.library} {self.network} {weights}".lstrip()

    @property
    def is_checked_by_building(self) -> bool:
        # A library may lack the model named by the spec.
        return self.weights is not None or hasattr(self, "model")


@ENCODERS.declare("small", "mtcon_ray.models.encoders.small:Small")
class SmallSpec(WeightsSpec):
    """A small residual network: 8 * width features."""

    width: int = Field(32, ge=4, le=512, description="channels of the first stage")
    blocks: int = Field(1, ge=1, le=16, description="residual blocks in each of four stages")


@ENCODERS.declare("vit", "mtcon_ray.models.encoders.vit:ViT")
class ViTSpec(WeightsSpec):
    """A small vision transformer."""

    has_batch_norm: ClassVar[bool] = False

    patch: int = Field(8, ge=1, le=64, description="side of a patch in pixels")
    width: int = Field(192, ge=8, le=4096, multiple_of=4, description="features of a patch")
    depth: int = Field(6, ge=1, le=64, description="transformer blocks")
    heads: int = Field(3, ge=1, le=64, description="attention heads of a block")

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.width % self.heads:
            raise ValueError(f"width must be divisible by heads, got {self.width} and {self.heads}")
        return self

    def check(self, view_size: int) -> None:
        if view_size % self.patch or view_size < 2 * self.patch:
            raise ValueError(
                f"views.size must be a multiple of model.encoder.patch, at least two of it, "
                f"got {view_size} and {self.patch}"
            )


class ResNetSpec(WeightsSpec):
    """Fields common to both ResNets."""

    library: ClassVar[str] = "torchvision"

    stem: Literal["imagenet", "small"] = Field(
        "imagenet", description="small: 3x3 of stride 1 and no pooling, for images below 64 pixels"
    )

    @model_validator(mode="after")
    def _stem_fits_the_weights(self) -> Self:
        if self.weights is not None and self.is_name(self.weights) and self.stem == "small":
            raise ValueError(
                f"stem must be imagenet where weights is {self.weights}, got small; "
                "set weights: null, or name a state-dict file of a network with the small stem"
            )
        return self


@ENCODERS.declare("resnet18", "mtcon_ray.models.encoders.torchvision:ResNet18")
class ResNet18Spec(ResNetSpec):
    """torchvision's ResNet-18."""

    names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1")

    stages: Literal[3, 4] = Field(4, description="3: end after stage 3 with 256 features, as CSN")


@ENCODERS.declare("resnet50", "mtcon_ray.models.encoders.torchvision:ResNet50")
class ResNet50Spec(ResNetSpec):
    """torchvision's ResNet-50."""

    names: ClassVar[tuple[str, ...]] = ("imagenet", "IMAGENET1K_V1", "IMAGENET1K_V2")


@ENCODERS.declare("torchvision", "mtcon_ray.models.encoders.torchvision:Torchvision")
class TorchvisionSpec(WeightsSpec):
    """A classification network of torchvision, such as ConvNeXt, Swin or another ResNet."""

    library: ClassVar[str] = "torchvision"
    names: ClassVar[tuple[str, ...]] = (IMAGENET, FIRST, "another name of torchvision's")

    model: Text = Field("resnet34", description="torchvision's classifier, such as convnext_tiny")

    @classmethod
    def is_name(cls, value: str) -> bool:
        return value == IMAGENET or re.fullmatch(r"IMAGENET1K_\w+|DEFAULT", value) is not None


@ENCODERS.declare("timm", "mtcon_ray.models.encoders.timm:Timm")
class TimmSpec(WeightsSpec):
    """A backbone of timm. Needs the extra `timm`."""

    library: ClassVar[str] = "timm"
    names: ClassVar[tuple[str, ...]] = ("pretrained",)

    model: Text = Field(
        "tresnet_m",
        description="timm's name of a model for images of views.size, such as "
        "resnet18.a1_in1k, or hf-hub:OWNER/NAME for a model of the Hugging Face hub",
    )


class ModelSpec(Spec):
    """The shared encoder, and the projection heads on it."""

    encoder: Annotated[EncoderSpec, Choice(ENCODERS, "resnet18")] = ResNet18Spec()
    embedding_dim: int | None = Field(
        None, ge=2, le=4096, description="width of a linear layer on the features (null: no layer)"
    )
    head_dim: int = Field(32, ge=2, le=4096, description="width of a projection head's output")
    head_hidden: int | None = Field(
        None, ge=2, le=65536, description="width of a head's hidden layer (null: as the features)"
    )
    batch_norm: Literal["global", "local"] = Field(
        "global",
        description="batch statistics over the items of all workers (global), or of a single "
        "worker, or of a single chunk with train.chunk_size (local)",
    )
