"""No training: the encoder is probed as it is built."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.base import METHODS, Method, MethodSpec
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network


@METHODS.register("none")
class NoTraining(Method):
    """A baseline for all that is trained: an encoder of random or given weights, or handcrafted."""

    class Spec(MethodSpec):
        """Nothing is trained: the encoder is probed once; `train.epochs` counts as 1.

        With `model.encoder: {name: handcrafted}` the baseline of fixed image features, with any
        other encoder that of its first weights, random or `model.encoder.weights`.
        """

        trains: ClassVar[bool] = False

        name: Literal["none"] = "none"

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return ()

    def make_network(self, encoder: Encoder) -> Network:
        return Network(encoder, {})

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """No loss."""
        return {}
