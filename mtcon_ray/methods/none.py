"""No training: the encoder is probed with its initial weights."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.base import METHODS, Method, MethodOutput, MethodSpec


@METHODS.register("none")
class NoTraining(Method):
    """Baseline of all trained methods: an encoder with random or given weights, or handcrafted."""

    class Spec(MethodSpec):
        """No training: the encoder is probed once, and `train.epochs` counts as 1.

        With `model.encoder: {name: handcrafted}` this is the baseline of fixed image features. With
        any other encoder it is the baseline of initial weights, random or `model.encoder.weights`.
        """

        trains: ClassVar[bool] = False
        uses_labels: ClassVar[bool] = False

        name: Literal["none"] = "none"

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return ()

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns no losses."""
        return MethodOutput({})
