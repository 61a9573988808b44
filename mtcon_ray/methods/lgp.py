"""LGP, Layer Grafted Pre-training: masked auto-encoding first, then contrastive learning."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.autoencoding import AutoencodingMethod
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.masked import RECONSTRUCTION, MaskedNetwork
from mtcon_ray.spec.methods.self_supervised import LGPSpec


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

    spec: LGPSpec
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
            output = self.contrast(z_by_head)
        return output._replace(losses=output.losses | {RECONSTRUCTION: error})
