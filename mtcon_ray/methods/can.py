"""CAN: contrastive, masked auto-encoding and noise prediction at once (METHODS 11.7)."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.weighting import FixedWeights, Weighting
from mtcon_ray.methods.autoencoding import AutoencodingMethod, AutoencodingSpec
from mtcon_ray.methods.base import METHODS
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.models.masked import NOISE, RECONSTRUCTION, MaskedNetwork


@METHODS.register("can")
class CAN(AutoencodingMethod):
    """Mishra 2022, arXiv:2210.16870: three fixed weights on three losses of one forward pass.

    Noise is added to every view and half of its patches are hidden; the pooled seen patches are
    contrasted, hidden patches are reconstructed (clean pixels, standardised per patch), the
    noise of seen ones is predicted.

    The default weights 0.03, 0.67 and 0.30 and the largest level 0.05 are those of an independent
    re-implementation, not read in the paper. Here the noise is predicted in units of its
    level, where that code predicts it standardised per patch, and the decoder is small.
    """

    class Spec(AutoencodingSpec):
        """One contrastive head and a denoising masked auto-encoder."""

        name: Literal["can"] = "can"
        noise_level: float = Field(
            0.05, gt=0, le=1, description="largest deviation of the noise on normalised pixels"
        )
        contrast_weight: float = Field(0.03, ge=0, le=1000, description="of the contrastive loss")
        reconstruction_weight: float = Field(0.67, ge=0, le=1000, description="of hidden pixels")
        noise_weight: float = Field(0.3, ge=0, le=1000, description="of the predicted noise")

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return (*self.instance_heads, RECONSTRUCTION, NOISE)

    def make_weighting(self) -> Weighting:
        spec = self.spec
        contrast = dict.fromkeys(self.instance_heads, spec.contrast_weight)
        errors = {RECONSTRUCTION: spec.reconstruction_weight, NOISE: spec.noise_weight}
        return FixedWeights(contrast | errors)

    def mask(self, encoder: ViT, heads: Mapping[str, ProjectionHead]) -> MaskedNetwork:
        return MaskedNetwork(
            encoder,
            heads,
            self.make_decoder(encoder, levels=True),
            mask_ratio=self.spec.mask_ratio,
            noise_level=self.spec.noise_level,
        )

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The contrastive terms, and the mean squared errors."""
        errors = {head: z_by_head[head].mean() for head in (RECONSTRUCTION, NOISE)}
        return self.contrast(z_by_head) | errors
