"""Networks that encode some patches of an image and decode the rest: masked auto-encoding.

What an auto-encoding loss needs of a row is that row's own error, so it leaves the network as
the row of a further head of width 1.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from mtcon_ray.models.encoders.vit import ViT, patches, positions, transformer_blocks, waves
from mtcon_ray.models.network import Network

RECONSTRUCTION = "reconstruction"
NOISE = "noise"
DECODER_HEADS = 4
# A noise level in [0, 1] is coded by waves, for which values of this size differ well.
LEVEL_SCALE = 1000.0


class Seen(NamedTuple):
    """What of some images was encoded."""

    encoded_NKD: Tensor  # features of the K patches that were seen
    place_NK: Tensor  # their places among the image's P patches
    hidden_NP: Tensor  # bool, the patches that were not


class Decoder(nn.Module):
    """Predicts every patch's 3 * patch^2 values from those that were seen: He 2022, MAE 3.

    With `levels`, the code of each image's noise level is added to all its tokens.
    """

    def __init__(self, encoder: ViT, *, width: int, depth: int, levels: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(encoder.width, width)
        self.hidden_D = nn.Parameter(torch.randn(width) * 0.02)
        self.blocks = transformer_blocks(width, depth, DECODER_HEADS)
        self.norm = nn.LayerNorm(width)
        self.predict = nn.Linear(width, 3 * encoder.patch**2)
        self.level = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
            if levels
            else None
        )

    def forward(self, seen: Seen, grid: tuple[int, int], level_N: Tensor | None = None) -> Tensor:
        """Values of all patches of the grid, in the order of `patches`: [N, P, 3 * patch^2]."""
        token_NKD: Tensor = self.embed(seen.encoded_NKD)
        D = token_NKD.shape[2]
        token_NPD = self.hidden_D.to(token_NKD.dtype).expand(*seen.hidden_NP.shape, D)
        token_NPD = token_NPD.scatter(1, seen.place_NK[:, :, None].expand(-1, -1, D), token_NKD)
        token_NPD = token_NPD + positions(*grid, token_NPD)
        if self.level is not None:
            assert level_N is not None
            code_ND = waves(level_N * LEVEL_SCALE, D).to(token_NPD.dtype)
            token_NPD = token_NPD + self.level(code_ND)[:, None]
        for block in self.blocks:
            token_NPD = block(token_NPD)
        value_NPK: Tensor = self.predict(self.norm(token_NPD))
        return value_NPK


class MaskedNetwork(Network):
    """Projection heads on the patches that were seen, and the errors of a decoder (METHODS 11.7).

    Each row's patches are hidden anew in each step, by torch's global generator. With a
    `noise_level`, Gaussian noise is added to the pixels, its level drawn for each row evenly
    from 0 to that; the decoder then predicts the clean pixels of hidden patches and the noise,
    in units of its level, of those seen. After training all patches are encoded, without noise.
    """

    def __init__(
        self,
        encoder: ViT,
        heads: Mapping[str, nn.Module],
        decoder: Decoder,
        *,
        mask_ratio: float,
        noise_level: float | None = None,
    ) -> None:
        super().__init__(encoder, heads)
        self.decoder = decoder
        self.mask_ratio = mask_ratio
        self.noise_level = noise_level

    @property
    def vit(self) -> ViT:
        """The encoder, of which masking needs more than features."""
        assert isinstance(self.encoder, ViT)
        return self.encoder

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Each projection head's rows, then errors [N, 1] in float32 at least."""
        h_ND, errors = self.autoencode(x_NCHW)
        return self.apply_heads(h_ND) | errors

    def autoencode(self, x_NCHW: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Features averaged over the seen patches, and `reconstruction`, with noise `noise`."""
        noisy_NCHW, noise_NCHW, level_N = self._add_noise(x_NCHW)
        seen = see_some(self.vit, noisy_NCHW, self.mask_ratio)
        value_NPK = self.decoder(seen, self.vit.grid(x_NCHW), level_N)
        pixels_NPK = standardise(patches(x_NCHW, self.vit.patch))
        error_N = patch_error(value_NPK, pixels_NPK, seen.hidden_NP)
        errors = {RECONSTRUCTION: error_N[:, None]}
        if noise_NCHW is not None:
            noise_NPK = patches(noise_NCHW, self.vit.patch)
            errors[NOISE] = patch_error(value_NPK, noise_NPK, ~seen.hidden_NP)[:, None]
        return seen.encoded_NKD.mean(dim=1), errors

    def _add_noise(self, x_NCHW: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Noisy images, the unit noise in them, and its level."""
        if self.noise_level is None:
            return x_NCHW, None, None
        level_N = torch.rand(len(x_NCHW), device=x_NCHW.device) * self.noise_level
        noise_NCHW = torch.randn_like(x_NCHW)
        noisy_NCHW = x_NCHW + level_N.to(x_NCHW.dtype)[:, None, None, None] * noise_NCHW
        return noisy_NCHW, noise_NCHW, level_N


class GraftedNetwork(MaskedNetwork):
    """Auto-encodes up to `masked_share` of training; from then on projects whole images.

    In the first phase the projections have no gradient, in the second the errors are 0.
    """

    skips_parameters = True

    def __init__(
        self,
        encoder: ViT,
        heads: Mapping[str, nn.Module],
        decoder: Decoder,
        *,
        mask_ratio: float,
        masked_share: float,
    ) -> None:
        super().__init__(encoder, heads, decoder, mask_ratio=mask_ratio)
        self.masked_share = masked_share
        self.progress = 0.0

    @property
    def progress(self) -> float:
        """As of every network; a compiled forward reads only which phase that is."""
        return self._progress

    @progress.setter
    def progress(self, share: float) -> None:
        self._progress = share
        self._is_masked = share < self.masked_share

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        """Each projection head's rows, then the reconstruction's errors [N, 1]."""
        if self._is_masked:
            h_ND, errors = self.autoencode(x_NCHW)
            with torch.no_grad():
                return self.apply_heads(h_ND) | errors
        rows = self.apply_heads(self.encoder(x_NCHW))
        return rows | {RECONSTRUCTION: next(iter(rows.values())).new_zeros(len(x_NCHW), 1)}


def see_some(vit: ViT, x_NCHW: Tensor, mask_ratio: float) -> Seen:
    """The images' patches but a random share of them, encoded.

    round(P (1 - mask_ratio)) patches are seen, at least one, at most all but one; each row draws
    its own from torch's global generator.
    """
    token_NPD = vit.tokens(x_NCHW)
    N, P, D = token_NPD.shape
    num_seen = min(max(round(P * (1 - mask_ratio)), 1), P - 1)
    place_NK = torch.rand(N, P, device=x_NCHW.device).argsort(dim=1)[:, :num_seen]
    hidden_NP = torch.ones(N, P, dtype=torch.bool, device=x_NCHW.device)
    hidden_NP = hidden_NP.scatter(1, place_NK, False)
    seen_NKD = token_NPD.gather(1, place_NK[:, :, None].expand(-1, -1, D))
    return Seen(vit.encode(seen_NKD), place_NK, hidden_NP)


def standardise(patch_NPK: Tensor) -> Tensor:
    """Each patch less its mean, divided by its deviation: MAE's target (He 2022, 3)."""
    variance_NP1, mean_NP1 = torch.var_mean(patch_NPK, dim=2, keepdim=True, correction=0)
    return (patch_NPK - mean_NP1) * (variance_NP1 + 1e-6).rsqrt()


def patch_error(value_NPK: Tensor, target_NPK: Tensor, chosen_NP: Tensor) -> Tensor:
    """Mean squared error over the chosen patches of each row, of which there is one: [N]."""
    with torch.autocast(value_NPK.device.type, enabled=False):
        error_NP = (value_NPK - target_NPK).square().mean(dim=2)
        return (error_NP * chosen_NP).sum(dim=1) / chosen_NP.sum(dim=1)
