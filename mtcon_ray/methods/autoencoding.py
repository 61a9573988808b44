"""Common base of CAN and LGP: a vision transformer, a decoder and a contrastive loss.

The contrastive loss is NT-Xent with a fixed temperature, or AMCL with a temperature per pair.
"""

from collections.abc import Mapping

from torch import Tensor

from mtcon_ray.losses.amcl import Adaptive
from mtcon_ray.losses.contrastive import contrast
from mtcon_ray.losses.positives import OwnView
from mtcon_ray.methods.amcl import adapt_heads, seeded_temperature_net
from mtcon_ray.methods.base import MethodOutput, compare
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.masked import Decoder, MaskedNetwork
from mtcon_ray.spec.methods.self_supervised import AutoencodingSpec
from mtcon_ray.spec.problem import Problem


class AutoencodingMethod(SelfSupervisedMethod):
    """Base of methods that train projection heads and a masked auto-encoder, without labels."""

    spec: AutoencodingSpec

    def __init__(self, spec: AutoencodingSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.adaptive = None
        if spec.contrast == "amcl":
            self.temperature_net = seeded_temperature_net(problem.head_dim, problem.seed)
            self.adaptive = Adaptive(
                self.temperature_net, spec.beta, spec.tau_min, spec.tau_max, spec.top_k, "infonce"
            )

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

    def contrast(self, z_by_head: Mapping[str, Tensor]) -> MethodOutput:
        """Returns each projection head's contrastive loss, NT-Xent in nats or AMCL's InfoNCE form.

        z_by_head[head] is z_BVD with unit rows. Heads of errors are ignored. With AMCL, the details
        are the shares of temperatures within 1 % of the two bounds.
        """
        rows = {head: z_by_head[head] for head in self.instance_heads}
        if self.adaptive is not None:
            return adapt_heads(rows, self.adaptive)
        loss_H = contrast(list(rows.values()), OwnView(), self.spec.temperature).loss
        compared = {head: compare(z_BVD) for head, z_BVD in rows.items()}
        return MethodOutput(dict(zip(rows, loss_H.unbind(), strict=True)), compared)
