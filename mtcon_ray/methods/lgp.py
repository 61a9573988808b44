"""LGP, Layer Grafted Pre-training: masked auto-encoding first, contrast then (METHODS 11.7)."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.methods.autoencoding import AutoencodingMethod, AutoencodingSpec
from mtcon_ray.methods.base import METHODS
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.models.masked import RECONSTRUCTION, GraftedNetwork

Share = Annotated[float, Field(ge=0, le=1)]
_BLOCK = re.compile(r"encoder\.blocks\.(\d+)\.")


@METHODS.register("lgp")
class LGP(AutoencodingMethod):
    """Jiang 2023: grafts contrast onto a masked auto-encoder, moving early layers little.

    The first `masked_share` of the steps reconstructs hidden patches, the others contrast the
    whole views; each third of the blocks then has its own share of the learning rate, and keeps
    the more of the auto-encoder the lower it lies.

    In-batch InfoNCE as in MoCo-v3, but without its momentum teacher and predictor, and with the
    items' own-view pairs of one space: the term is then the one that AMCL's 2.4 is written for,
    and a step costs one pass. MoCo-v3's factor 2 * temperature is left to the learning rate.
    One learning-rate schedule spans both phases, where the authors run two trainings.
    """

    class Spec(AutoencodingSpec):
        """A masked auto-encoder, then one contrastive head."""

        name: Literal["lgp"] = "lgp"
        mask_ratio: float = Field(0.75, gt=0, lt=1, description="share of patches that is hidden")
        masked_share: float = Field(
            0.5, gt=0, lt=1, description="share of the steps that auto-encodes, before contrast"
        )
        lr_by_depth: tuple[Share, Share, Share] = Field(
            (0.1, 0.1, 1.0),
            description="share of train.lr in the contrastive phase, by third of the blocks; "
            "the first third's holds for the patches' embedding too",
        )

    spec: Spec

    def __init__(self, spec: Spec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.phases = (spec.masked_share,)
        self._depth = 0

    @property
    def is_masked(self) -> bool:
        """Whether the phase is the first."""
        return self.progress < self.spec.masked_share

    def name_heads(self) -> tuple[str, ...]:
        return (*self.instance_heads, RECONSTRUCTION)

    def mask(self, encoder: ViT, heads: Mapping[str, ProjectionHead]) -> GraftedNetwork:
        self._depth = len(encoder.blocks)
        return GraftedNetwork(
            encoder,
            heads,
            self.make_decoder(encoder),
            mask_ratio=self.spec.mask_ratio,
            masked_share=self.spec.masked_share,
        )

    def lr_group(self, parameter: str) -> int:
        """0 for heads, the decoder and the last third, 1 for the first, 2 for the middle one."""
        if parameter.startswith("encoder.embed."):
            return 1
        block = _BLOCK.match(parameter)
        if block is None:
            return 0
        above = self._depth - 1 - int(block[1])
        return (0, 2, 1)[3 * above // self._depth]

    def lr_scales(self) -> tuple[float, ...]:
        if self.is_masked:
            return (1.0, 1.0, 1.0)
        first, middle, last = self.spec.lr_by_depth
        return (last, first, middle)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """The phase's losses, contrastive terms or a mean squared error; the other's are 0."""
        error = z_by_head[RECONSTRUCTION].mean()
        if self.is_masked:
            return dict.fromkeys(self.instance_heads, torch.zeros_like(error)) | {
                RECONSTRUCTION: error
            }
        return self.contrast(z_by_head) | {RECONSTRUCTION: error}
