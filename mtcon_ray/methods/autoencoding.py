"""What CAN and LGP share: a vision transformer, a decoder, and one contrastive term."""

from abc import abstractmethod
from collections.abc import Mapping

from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Problem
from mtcon_ray.losses.contrastive import contrastive
from mtcon_ray.losses.relations import OwnView
from mtcon_ray.methods.base import ContrastiveSpec, Method
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.models.masked import DECODER_HEADS, Decoder, MaskedNetwork

INSTANCE = "instance"


class AutoencodingSpec(ContrastiveSpec):
    """What the section of every masked auto-encoding method has."""

    mask_ratio: float = Field(0.5, gt=0, lt=1, description="share of patches that is hidden")
    decoder_width: int = Field(
        128, ge=16, le=4096, multiple_of=4 * DECODER_HEADS, description="features of a patch"
    )
    decoder_depth: int = Field(2, ge=1, le=32, description="transformer blocks of the decoder")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.encoder != "vit":
            raise ValueError(
                f"model.encoder.name must be vit for a method that masks patches, "
                f"got {problem.encoder}"
            )


class AutoencodingMethod(Method):
    """One head for images as such, beside a masked auto-encoder's errors; no label is used."""

    spec: AutoencodingSpec

    def make_network(self, encoder: Encoder) -> MaskedNetwork:
        assert isinstance(encoder, ViT)
        width, hidden = self.problem.head_dim, self.problem.head_hidden
        return self.mask(
            encoder, {INSTANCE: ProjectionHead(encoder.width, dim=width, hidden=hidden)}
        )

    @abstractmethod
    def mask(self, encoder: ViT, heads: Mapping[str, ProjectionHead]) -> MaskedNetwork:
        """The network that masks, with these projection heads."""

    def make_decoder(self, encoder: ViT, *, levels: bool = False) -> Decoder:
        """The spec's decoder; with levels it is told each image's noise level."""
        spec = self.spec
        return Decoder(encoder, width=spec.decoder_width, depth=spec.decoder_depth, levels=levels)

    def contrast(self, z_BVD: Tensor) -> Tensor:
        """The contrastive term, a scalar, from unit rows."""
        return contrastive(z_BVD, OwnView(), temperature=self.spec.temperature)
