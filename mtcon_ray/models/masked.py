"""Masked auto-encoding: the encoder gets some patches of an image, a decoder predicts the others.

He et al. 2022 (MAE), arXiv:2111.06377. The error of an image depends on this image alone, so the
network returns errors as the rows [N, 1] of further heads.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mtcon_ray.models.encoders.vit import ViT, patches, positions, transformer_blocks, waves
from mtcon_ray.models.network import Network
from mtcon_ray.spec.methods.self_supervised import DECODER_HEADS

RECONSTRUCTION = "reconstruction"
NOISE = "noise"
# Factor on noise levels in [0, 1] before `waves`: its frequencies are made for larger values.
LEVEL_SCALE = 1000.0


class Seen(NamedTuple):
    """The encoded patches of N images, and which patches these are."""

    encoded_NKD: Tensor  # features of the K seen patches
    place_NK: Tensor  # their indices among the P patches of the image, in the same order
    hidden_NP: Tensor  # bool, True for hidden patches


class Decoder(nn.Module):
    """Predicts the 3 * patch^2 values of every patch from the seen patches.

    He et al. 2022, arXiv:2111.06377, sec. 3. With `levels`, a code of each image's noise level is
    added to all its tokens.
    """

    def __init__(self, encoder: ViT, *, width: int, depth: int, levels: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(encoder.embed.out_features, width)
        self.hidden_D = nn.Parameter(torch.randn(width) * 0.02)
        self.blocks = transformer_blocks(width, depth, DECODER_HEADS)
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, 3 * encoder.patch**2)
        self.level = None
        if levels:
            self.level = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, seen: Seen, grid: tuple[int, int], level_N: Tensor | None = None) -> Tensor:
        """Returns the values of all patches of the grid, [N, P, 3 * patch^2], as `patches` does.

        level_N is needed if the decoder has `levels`.
        """
        token_NKD: Tensor = self.embed(seen.encoded_NKD)
        D = token_NKD.shape[2]
        # All patches start as the mask token. Seen patches then overwrite theirs.
        token_NPD = self.hidden_D.to(token_NKD.dtype).expand(*seen.hidden_NP.shape, D)
        token_NPD = token_NPD.scatter(1, seen.place_NK[:, :, None].expand(-1, -1, D), token_NKD)
        token_NPD = token_NPD + positions(*grid, token_NPD)
        if self.level is not None:
            assert level_N is not None
            code_ND = waves(level_N * LEVEL_SCALE, D).to(token_NPD.dtype)
            token_NPD = token_NPD + self.level(code_ND)[:, None]
        value_NPK: Tensor = self.predict(self.norm(self.blocks(token_NPD)))
        return value_NPK


class MaskedNetwork(Network):
    """Projection heads and the errors of a decoder, as in CAN and LGP.

    In each step a random share of each row's patches is hidden, drawn by torch's global generator.

    `noise_level` (CAN: Mishra et al. 2022, arXiv:2210.16870): Gaussian noise is added to the
    pixels. Its level is uniform in [0, noise_level] and drawn for each row. The decoder then
    predicts the clean pixels of hidden patches, and the noise of seen patches in units of its
    level. `features` encodes all patches, without noise.

    `masked_share` (LGP: Jiang et al. 2023, arXiv:2302.14138): the share of training with hidden
    patches. Below 1 the projections have no gradient in this phase. Afterwards whole images are
    projected, and the errors are 0.
    """

    encoder: ViT

    def __init__(
        self,
        encoder: ViT,
        heads: Mapping[str, nn.Module],
        decoder: Decoder,
        *,
        mask_ratio: float,
        noise_level: float | None = None,
        masked_share: float = 1.0,
    ) -> None:
        super().__init__(encoder, heads)
        self.decoder = decoder
        self.mask_ratio, self.noise_level, self.masked_share = mask_ratio, noise_level, masked_share
        self.skips_parameters = masked_share < 1
        self.num_errors = 1 if noise_level is None else 2

    @property
    def phase(self) -> int:
        """0 while patches are hidden, then 1."""
        return int(self.progress >= self.masked_share)

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Returns each projection head's rows, then errors [N, 1], all in float32 at least."""
        if self.phase:
            rows = self.apply_heads(self.encode(x_NCHW))
            return rows | {RECONSTRUCTION: next(iter(rows.values())).new_zeros(len(x_NCHW), 1)}
        h_ND, errors = self.autoencode(x_NCHW)
        # Every step returns all heads. Without gradients the projections of a first phase cost
        # little.
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.skips_parameters):
            return self.apply_heads(h_ND) | errors

    def autoencode(self, x_NCHW: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns features of the mean over the seen patches, [N, D], and errors [N, 1] by name.

        The names are `reconstruction` and, if noise is added, `noise`.
        """
        noisy_NCHW, noise_NCHW, level_N = x_NCHW, None, None
        if self.noise_level is not None:
            level_N = torch.rand(len(x_NCHW), device=x_NCHW.device) * self.noise_level
            noise_NCHW = torch.randn_like(x_NCHW)  # of variance 1 before scaling
            noisy_NCHW = x_NCHW + level_N.to(x_NCHW.dtype)[:, None, None, None] * noise_NCHW
        seen = see_some(self.encoder, noisy_NCHW, self.mask_ratio)
        value_NPK = self.decoder(seen, self.encoder.grid(x_NCHW), level_N)
        pixels_NPK = standardise(patches(x_NCHW, self.encoder.patch))
        errors = {RECONSTRUCTION: patch_error(value_NPK, pixels_NPK, seen.hidden_NP)[:, None]}
        if noise_NCHW is not None:
            noise_NPK = patches(noise_NCHW, self.encoder.patch)
            errors[NOISE] = patch_error(value_NPK, noise_NPK, ~seen.hidden_NP)[:, None]
        return self.encoder.embedding_layer(seen.encoded_NKD.mean(dim=1)), errors


def see_some(vit: ViT, x_NCHW: Tensor, mask_ratio: float) -> Seen:
    """Returns the encoding of a random subset of each image's patches.

    round(P (1 - mask_ratio)) patches are seen, at least 1 and at most P - 1. Each row has its own
    subset, drawn by torch's global generator.
    """
    token_NPD = vit.tokens(x_NCHW)
    N, P, D = token_NPD.shape
    num_seen = min(max(round(P * (1 - mask_ratio)), 1), P - 1)
    # Sorting random numbers permutes each row by itself, for all rows at once.
    place_NK = torch.rand(N, P, device=x_NCHW.device).argsort(dim=1)[:, :num_seen]
    hidden_NP = x_NCHW.new_ones(N, P, dtype=torch.bool).scatter_(1, place_NK, False)
    seen_NKD = token_NPD.gather(1, place_NK[:, :, None].expand(-1, -1, D))
    return Seen(vit.encode(seen_NKD), place_NK, hidden_NP)


def standardise(patch_NPK: Tensor) -> Tensor:
    """Returns patches [N, P, K] standardised over K: MAE's target, He et al. 2022, sec. 3.

    Constant patches give 0.
    """
    variance_NP1, mean_NP1 = torch.var_mean(patch_NPK, dim=2, keepdim=True, correction=0)
    return (patch_NPK - mean_NP1) * (variance_NP1 + 1e-6).rsqrt()


def patch_error(value_NPK: Tensor, target_NPK: Tensor, chosen_NP: Tensor) -> Tensor:
    """Returns the mean squared error over the chosen patches of each row, [N].

    value and target are [N, P, K]. chosen_NP is bool and must have a True in every row.
    """
    with torch.autocast(value_NPK.device.type, enabled=False):
        error_NP = (value_NPK - target_NPK).square().mean(dim=2)
        return (error_NP * chosen_NP).sum(dim=1) / chosen_NP.sum(dim=1)
