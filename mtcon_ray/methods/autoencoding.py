"""Common base of CAN and LGP: a vision transformer, a decoder and a contrastive loss.

The contrastive loss is NT-Xent with a fixed temperature, or AMCL with a temperature per pair.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Problem
from mtcon_ray.losses.contrastive import contrast
from mtcon_ray.losses.learned_temperature import Adaptive
from mtcon_ray.losses.positives import OwnView
from mtcon_ray.methods.adaptive import (
    AdaptiveSpec,
    adapt_heads,
    seeded_temperature_net,
    top_k_warning,
)
from mtcon_ray.methods.base import ContrastiveSpec, Method, MethodOutput, compare
from mtcon_ray.methods.self_supervised import number_heads
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.masked import DECODER_HEADS, Decoder, MaskedNetwork


class AutoencodingSpec(AdaptiveSpec, ContrastiveSpec):
    """Fields common to the masked auto-encoding methods."""

    mask_ratio: float = Field(0.5, gt=0, lt=1, description="share of hidden patches")
    decoder_width: int = Field(
        128, ge=16, le=4096, multiple_of=4 * DECODER_HEADS, description="width of the decoder"
    )
    decoder_depth: int = Field(2, ge=1, le=32, description="transformer blocks of the decoder")
    contrast: Literal["infonce", "amcl"] = Field(
        "infonce", description="same temperature for all pairs (infonce), or one per pair (amcl)"
    )
    beta: float = Field(
        1e-4, ge=0, le=1000, description="AMCL: weight of the regulariser of temperatures"
    )

    def warnings(self) -> dict[str, str]:
        return top_k_warning(self.top_k) if self.contrast == "amcl" else {}

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.encoder != "vit":
            raise ValueError(
                f"model.encoder.name must be vit for a method that hides patches, "
                f"got {problem.encoder}"
            )


class AutoencodingMethod(Method):
    """Base of methods that train projection heads and a masked auto-encoder, without labels."""

    spec: AutoencodingSpec

    def __init__(self, spec: AutoencodingSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.adaptive = None
        if spec.contrast == "amcl":
            self.temperature_net = seeded_temperature_net(problem.head_dim, problem.seed)
            self.adaptive = Adaptive(
                self.temperature_net, spec.beta, spec.tau_min, spec.tau_max, spec.top_k
            )

    @property
    def instance_heads(self) -> tuple[str, ...]:
        """Names of the projection heads."""
        return number_heads(self.spec.num_heads)

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
            return adapt_heads(rows, self.adaptive, form="infonce")
        loss_H = contrast(list(rows.values()), OwnView(), self.spec.temperature).loss
        compared = {head: compare(z_BVD) for head, z_BVD in rows.items()}
        return MethodOutput(dict(zip(rows, loss_H.unbind(), strict=True)), compared)
