"""CAN: contrastive learning, masked auto-encoding and noise prediction in a single forward pass."""

from collections.abc import Mapping

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.weighting import FixedWeights, Weighting
from mtcon_ray.methods.autoencoding import AutoencodingMethod
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.masked import NOISE, RECONSTRUCTION, MaskedNetwork
from mtcon_ray.spec.methods.self_supervised import CANSpec


class CAN(AutoencodingMethod):
    """CAN, Mishra et al. 2022, arXiv:2210.16870: a sum of three losses with fixed weights.

    Noise is added to every view, and a share of its patches is hidden. The contrastive loss
    compares the pooled features of the seen patches. The decoder reconstructs the hidden patches
    (clean pixels, standardised per patch) and predicts the noise of the seen patches.

    The default weights 0.03, 0.67 and 0.30 and the largest noise level 0.05 come from an
    independent re-implementation and were not checked against the paper. The re-implementation
    predicts the noise standardised per patch, ours in units of its level. The decoder is small.
    """

    spec: CANSpec

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
