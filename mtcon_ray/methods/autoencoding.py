"""CAN and LGP (Layer Grafted Pre-training): a vision transformer, a decoder, a contrastive loss.

The contrastive loss is NT-Xent with a fixed temperature, or AMCL with a temperature per pair.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.amcl import Adaptive, adapt
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.losses.weighting import FixedWeights, Weighting
from mtcon_ray.methods.amcl import seeded_temperature_net
from mtcon_ray.methods.base import ContrastiveMethod, MethodOutput
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.masked import NOISE, RECONSTRUCTION, Decoder, MaskedNetwork
from mtcon_ray.spec.methods import self_supervised as specs
from mtcon_ray.spec.problem import Problem


class AutoencodingMethod(ContrastiveMethod, SelfSupervisedMethod):
    """Base of methods that train projection heads and a masked auto-encoder, without labels."""

    spec: specs.AutoencodingSpec

    def __init__(self, spec: specs.AutoencodingSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        if spec.contrast == "amcl":
            self.temperature_net = seeded_temperature_net(problem.head_dim, problem.seed)
            bounds, phi = (spec.tau_min, spec.tau_max), self.temperature_net
            self.adaptive = Adaptive(phi, spec.beta, *bounds, spec.top_k, "infonce")

    def make_masked(self, encoder: Encoder, **options: float) -> MaskedNetwork:
        """Returns the encoder with its projection heads and the spec's decoder.

        `options` go to MaskedNetwork. With `noise_level` the noise level of an image is an input
        of the decoder.
        """
        assert isinstance(encoder, ViT)
        spec, levels = self.spec, "noise_level" in options
        heads = {head: self.make_head(head, encoder.width) for head in self.instance_heads}
        width, depth = spec.decoder_width, spec.decoder_depth
        decoder = Decoder(encoder, width=width, depth=depth, levels=levels)
        return MaskedNetwork(encoder, heads, decoder, mask_ratio=spec.mask_ratio, **options)

    def contrast(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each projection head's contrastive loss, NT-Xent in nats or AMCL's InfoNCE form.

        z_by_head[head] is z_BVD with unit rows. Heads of errors are ignored.
        """
        rows = {head: z_by_head[head] for head in self.instance_heads}
        base = ContrastiveMethod if self.spec.contrast == "infonce" else SelfSupervisedMethod
        return base.forward(self, rows, batch)

    def relation(self, head: str, batch: Batch) -> Relation:
        return OwnView()

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        return adapt(z_BVD, self.adaptive)


class CAN(AutoencodingMethod):
    """CAN, Mishra et al. 2022, arXiv:2210.16870: a sum of three losses with fixed weights.

    Noise is added to every view, and a share of its patches is hidden. The contrastive loss
    compares the pooled features of the seen patches. The decoder reconstructs the hidden patches
    (clean pixels, standardised per patch) and predicts the noise of the seen patches.

    The default weights 0.03, 0.67 and 0.30 and the largest noise level 0.05 come from an
    independent re-implementation and were not checked against the paper. The re-implementation
    predicts the noise standardised per patch, ours in units of its level. The decoder is small.
    """

    spec: specs.CANSpec

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
        contrast = self.contrast(z_by_head, batch)
        return contrast._replace(losses=contrast.losses | errors)


class LGP(AutoencodingMethod):
    """Layer Grafted Pre-training, Jiang et al. 2023, arXiv:2302.14138.

    The first `masked_share` of the steps reconstruct hidden patches, the others contrast whole
    views. In the second phase each third of the blocks has its own share of the learning rate
    (`lr_by_depth`), to keep early blocks close to the masked auto-encoder.

    The authors use the contrastive loss of MoCo v3 (Chen et al. 2021, arXiv:2104.02057). Here it
    is NT-Xent, without momentum encoder and predictor. AMCL's InfoNCE form then replaces it
    directly, and a step needs one forward pass. The factor 2 * temperature of MoCo v3 is left to
    the learning rate. A single learning-rate schedule spans both phases. The authors run two
    trainings.
    """

    spec: specs.LGPSpec
    _depth = 0  # blocks of the network, known once it is made

    @property
    def is_masked(self) -> bool:
        """True in the first phase, masked auto-encoding."""
        return self.progress < self.spec.masked_share

    def name_heads(self) -> tuple[str, ...]:
        return (*self.instance_heads, RECONSTRUCTION)

    def make_network(self, encoder: Encoder) -> MaskedNetwork:
        network = self.make_masked(encoder, masked_share=self.spec.masked_share)
        self._depth = len(network.encoder.blocks)
        return network

    def lr_group(self, parameter: str) -> int:
        """Returns the index in `lr_scales`: 1 for the first third of the blocks, 2 for the middle.

        It is 1 for the patch embedding, 0 for the last third, the heads and the decoder.
        """
        if parameter.startswith("encoder.embed."):
            return 1
        if not parameter.startswith("encoder.blocks."):
            return 0
        # Counted from the top: with fewer than three blocks the last third is not empty.
        above = self._depth - 1 - int(parameter.split(".")[2])
        return (0, 2, 1)[3 * above // self._depth]

    def lr_scales(self) -> tuple[float, ...]:
        if self.is_masked:
            return (1.0, 1.0, 1.0)
        first, middle, last = self.spec.lr_by_depth
        return (last, first, middle)  # in the order of `lr_group`

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the losses of the phase, a mean squared error or contrastive. All others are 0.

        z_by_head holds unit rows z_BVD of the projection heads, and errors [B, V, 1].
        """
        error = z_by_head[RECONSTRUCTION].mean()
        if self.is_masked:
            # Zeros, because every step must give the same losses to the weighting and the tracker.
            output = MethodOutput(dict.fromkeys(self.instance_heads, torch.zeros_like(error)))
        else:
            output = self.contrast(z_by_head, batch)
        return output._replace(losses=output.losses | {RECONSTRUCTION: error})
