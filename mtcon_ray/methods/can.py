"""CAN: contrastive learning, masked auto-encoding and noise prediction in a single forward pass."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.weighting import FixedWeights, Weighting
from mtcon_ray.methods.autoencoding import AutoencodingMethod, AutoencodingSpec
from mtcon_ray.methods.base import METHODS, MethodOutput
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.masked import NOISE, RECONSTRUCTION, MaskedNetwork


@METHODS.register("can")
class CAN(AutoencodingMethod):
    """CAN, Mishra et al. 2022, arXiv:2210.16870: a sum of three losses with fixed weights.

    Noise is added to every view, and a share of its patches is hidden. The contrastive loss
    compares the pooled features of the seen patches. The decoder reconstructs the hidden patches
    (clean pixels, standardised per patch) and predicts the noise of the seen patches.

    The default weights 0.03, 0.67 and 0.30 and the largest noise level 0.05 come from an
    independent re-implementation and were not checked against the paper. The re-implementation
    predicts the noise standardised per patch, ours in units of its level. The decoder is small.
    """

    class Spec(AutoencodingSpec):
        """Contrastive heads and a denoising masked auto-encoder."""

        name: Literal["can"] = "can"
        noise_level: float = Field(
            0.05, gt=0, le=1, description="largest deviation of the noise on normalised pixels"
        )
        contrast_weight: float = Field(
            0.03, ge=0, le=1000, description="weight of the contrastive loss"
        )
        reconstruction_weight: float = Field(
            0.67, ge=0, le=1000, description="weight of the reconstruction error of hidden patches"
        )
        noise_weight: float = Field(
            0.3, ge=0, le=1000, description="weight of the prediction error of the noise"
        )

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return (*self.instance_heads, RECONSTRUCTION, NOISE)

    def make_weighting(self) -> Weighting:
        spec = self.spec
        contrast = dict.fromkeys(self.instance_heads, spec.contrast_weight)
        errors = {RECONSTRUCTION: spec.reconstruction_weight, NOISE: spec.noise_weight}
        return FixedWeights(contrast | errors)

    def make_network(self, encoder: Encoder) -> MaskedNetwork:
        return self.make_masked(encoder, noise_level=self.spec.noise_level)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each projection head's contrastive loss and the two mean squared errors.

        z_by_head holds unit rows z_BVD of the projection heads, and errors [B, V, 1].
        """
        errors = {head: z_by_head[head].mean() for head in (RECONSTRUCTION, NOISE)}
        contrast = self.contrast(z_by_head)
        return contrast._replace(losses=contrast.losses | errors)
