"""A small vision transformer for any subset of an image's patches, as masking needs it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.models.encoders.base import Encoder, load_weights
from mtcon_ray.spec.encoders import ViTSpec


class ViT(Encoder):
    """Pre-norm transformer on patches, mean-pooled: Dosovitskiy et al. 2021, arXiv:2010.11929.

    No class token is used, and position codes are fixed. The sides of images must be multiples of
    the patch. Any subset of an image's patches can be encoded.
    """

    def __init__(self, spec: ViTSpec) -> None:
        super().__init__(spec)
        self.patch, self.width = spec.patch, spec.width
        self.embed = nn.Linear(3 * spec.patch**2, spec.width)
        self.blocks = transformer_blocks(spec.width, spec.depth, spec.heads)
        self.norm = nn.LayerNorm(spec.width)
        load_weights(self, spec)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns features averaged over patches, [N, width]."""
        return self.encode(self.tokens(x_NCHW)).mean(dim=1)

    def tokens(self, x_NCHW: Tensor) -> Tensor:
        """Returns embedded patches plus their position codes, row by row: [N, P, width]."""
        token_NPD: Tensor = self.embed(patches(x_NCHW, self.patch))
        return token_NPD + positions(*self.grid(x_NCHW), token_NPD)

    def encode(self, token_NPD: Tensor) -> Tensor:
        """Returns features [N, P, width] of tokens, which may be any subset in any order."""
        encoded_NPD: Tensor = self.norm(self.blocks(token_NPD))
        return encoded_NPD

    def grid(self, x_NCHW: Tensor) -> tuple[int, int]:
        """Returns the number of rows and of columns of patches in these images."""
        return x_NCHW.shape[2] // self.patch, x_NCHW.shape[3] // self.patch


def transformer_blocks(width: int, depth: int, heads: int) -> nn.Sequential:
    """Returns pre-norm blocks on [N, P, width]: GELU, hidden width 4 * width, no dropout."""
    blocks = [
        nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0, activation="gelu", batch_first=True, norm_first=True
        )
        for _ in range(depth)
    ]
    return nn.Sequential(*blocks)


def patches(x_NCHW: Tensor, patch: int) -> Tensor:
    """Returns the images' patches row by row, [N, P, C * patch * patch].

    Raises RuntimeError if a side is not divisible by `patch`.
    """
    return F.pixel_unshuffle(x_NCHW, patch).flatten(2).mT.contiguous()


def positions(rows: int, columns: int, like: Tensor) -> Tensor:
    """Returns fixed position codes of a grid, [rows * columns, D], row by row.

    D, dtype and device are as in `like`. The first half of D encodes the row, the second the
    column, each by sines and cosines of D/4 frequencies from 1 down to almost 1/10000: Vaswani et
    al. 2017, arXiv:1706.03762, sec. 3.5.
    """
    D = like.shape[-1]
    row_Y, column_X = (waves(torch.arange(n, device=like.device), D // 2) for n in (rows, columns))
    code_PD = torch.cat([row_Y.repeat_interleave(columns, 0), column_X.repeat(rows, 1)], dim=1)
    return code_PD.to(like.dtype)


def waves(value_K: Tensor, width: int) -> Tensor:
    """Returns sines and cosines of values [K] at width/2 frequencies, [K, width], width even."""
    half = width // 2
    frequency_F = 10_000.0 ** -(torch.arange(half, device=value_K.device) / half)
    angle_KF = value_K[:, None] * frequency_F
    return torch.cat([angle_KF.sin(), angle_KF.cos()], dim=1)
