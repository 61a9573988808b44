"""Handcrafted image features, the baseline for trained encoders."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.models.encoders.base import Encoder
from mtcon_ray.spec.encoders import HandcraftedSpec

# Side of the small colour image, cells a side and bins of half a turn of the gradients' histogram,
# and bins a channel of the colour histogram.
PIXELS, CELLS, ORIENTATIONS, COLOURS = 8, 6, 9, 4
# Sobel kernel: the derivative along x, per pixel.
SOBEL = ((-1 / 8, 0, 1 / 8), (-2 / 8, 0, 2 / 8), (-1 / 8, 0, 1 / 8))
# The default normalisation of views maps brightness 0 to 1 into this range.
DARKEST, BRIGHTEST = -2.2, 2.7


class Handcrafted(Encoder):
    """A small colour image, a histogram of oriented gradients and a colour histogram.

    There are no parameters. The histogram of gradients follows Dalal and Triggs 2005, "Histograms
    of oriented gradients for human detection". Orientations are unsigned, weighted by the length of
    the gradient and shared by the two nearest bins. Blocks of 2 x 2 cells are scaled to length 1.
    """

    width = 3 * PIXELS**2 + 4 * (CELLS - 1) ** 2 * ORIENTATIONS + COLOURS**3

    def __init__(self, spec: HandcraftedSpec) -> None:
        super().__init__(spec)
        along_x = torch.tensor(SOBEL)
        # A constant, so not in checkpoints. A buffer, because copying it to the device in each
        # forward pass would be a device synchronisation.
        self.sobel = nn.Buffer(torch.stack([along_x, along_x.T])[:, None], persistent=False)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns features, [N, width], in float32 at least under any autocast."""
        with torch.autocast(x_NCHW.device.type, enabled=False):
            x_NCHW = x_NCHW if x_NCHW.dtype == torch.float64 else x_NCHW.float()
            # Scaled to about the length of the other parts: a probe by SGD does not standardise.
            small_NCPP = F.adaptive_avg_pool2d(x_NCHW, PIXELS) / PIXELS
            parts = small_NCPP, self.gradients(x_NCHW), self.colours(x_NCHW)
            return torch.cat([part.flatten(1) for part in parts], dim=1)

    def gradients(self, x_NCHW: Tensor) -> Tensor:
        """Returns each block's histograms, [N, 4 * orientations, blocks], of length at most 1."""
        grey_N1HW = F.pad(x_NCHW.mean(dim=1, keepdim=True), (1, 1, 1, 1), mode="replicate")
        dx_NHW, dy_NHW = F.conv2d(grey_N1HW, self.sobel.to(grey_N1HW.dtype)).unbind(dim=1)
        length_NHW = (dx_NHW.square() + dy_NHW.square()).sqrt()
        # Unsigned modulo ORIENTATIONS.
        turn_NHW = torch.atan2(dy_NHW, dx_NHW) * (ORIENTATIONS / math.pi)
        bin_O = torch.arange(ORIENTATIONS, device=x_NCHW.device, dtype=x_NCHW.dtype)
        away = (turn_NHW[:, None] - bin_O[:, None, None]).remainder(ORIENTATIONS)
        share_NOHW = (1 - torch.minimum(away, ORIENTATIONS - away)).clamp(min=0)
        cells_NOCC = F.adaptive_avg_pool2d(share_NOHW * length_NHW[:, None], CELLS)
        blocks_NKL = F.unfold(cells_NOCC, kernel_size=2)
        # eps keeps a flat block near 0: its gradients are rounding errors.
        return F.normalize(blocks_NKL, dim=1, eps=0.01)

    def colours(self, x_NCHW: Tensor) -> Tensor:
        """Returns the square root of the share of pixels in each bin, [N, colours^2, colours].

        In each channel a pixel is shared linearly by its two nearest bins.
        """
        level_NCP = (x_NCHW.flatten(2) - DARKEST) / (BRIGHTEST - DARKEST) * (COLOURS - 1)
        bins_B1 = torch.arange(COLOURS, device=x_NCHW.device, dtype=x_NCHW.dtype)[:, None]
        away = (level_NCP.clamp(0, COLOURS - 1)[:, :, None] - bins_B1).abs()
        red_NBP, green_NBP, blue_NBP = (1 - away).clamp(min=0).unbind(dim=1)
        pairs_NBBP = red_NBP[:, :, None] * green_NBP[:, None]
        joint_NKB = torch.bmm(pairs_NBBP.flatten(1, 2), blue_NBP.mT)
        return (joint_NKB / x_NCHW[0, 0].numel()).sqrt()
