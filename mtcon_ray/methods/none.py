"""No training: the encoder is probed with its initial weights."""

from collections.abc import Mapping

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.base import Method, MethodOutput


class NoTraining(Method):
    """Baseline of all trained methods: an encoder with random or given weights, or handcrafted."""

    def name_heads(self) -> tuple[str, ...]:
        return ()

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns no losses."""
        return MethodOutput({})
