"""The `model` section."""

from typing import Annotated, Literal

from pydantic import Field

from mtcon_ray.base.registry import Choice, Spec
from mtcon_ray.models.encoders import ENCODERS, EncoderSpec
from mtcon_ray.models.encoders.resnet import ResNet18


class ModelSpec(Spec):
    """The shared encoder, and the projection heads on it."""

    encoder: Annotated[EncoderSpec, Choice(ENCODERS, "name", "resnet18")] = ResNet18.Spec()
    head_dim: int = Field(32, ge=2, le=4096, description="width of a projection head's output")
    head_hidden: int | None = Field(
        None, ge=2, le=65536, description="width of a head's hidden layer (null: the encoder's)"
    )
    batch_norm: Literal["global", "local"] = Field(
        "global",
        description="batch statistics over the items of all workers (global), or of a single "
        "worker, or of a single chunk with train.chunk_size (local)",
    )
