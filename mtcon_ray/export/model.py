"""Encoder and probes as a module, from images to the embedding and the labels' predictions.

Only uses operations supported by both torch.export and ONNX, with dynamic numbers of images, rows
and columns.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from mtcon_ray.data.dataset import store_size
from mtcon_ray.data.resizing import resampling
from mtcon_ray.models.network import Network
from mtcon_ray.spec.data.base import Resize
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.spec.views import ViewsSpec

# Pillow's resampling weights are integers in units of 1 / 2^22 (PRECISION_BITS = 32 - 8 - 2).
ONE = 2**22


class StoredResize(nn.Module):
    """Resize to the stored square: uint8 [N, H, W, 3] of any size to float32 [N, S, S, 3].

    Bit-identical to `data.decoding.decode_image`: Pillow's bilinear `resize` of columns, then of
    rows, each rounded to 8 bits. Pillow computes in fixed point. Float64 represents all of its
    sums exactly.
    """

    def __init__(self, size: int, resize: Resize) -> None:
        super().__init__()
        self.size, self.resize = size, resize

    def forward(self, images: Tensor) -> Tensor:
        """Returns float32 [N, S, S, 3] of whole numbers from 0 to 255."""
        N, H, W, _ = images.shape
        x_NHWC = images.double()
        columns_SW, inside_S = self._weights(W, H, images.device)
        x_NHSC = _rounded(columns_SW @ x_NHWC)
        rows_SH, inside_T = self._weights(H, W, images.device)
        x_NSP = _rounded(rows_SH @ x_NHSC.reshape(N, H, self.size * 3))
        x_NSSC = x_NSP.reshape(N, self.size, self.size, 3)
        if self.resize == "pad":
            x_NSSC = x_NSSC.where((inside_T[:, None] & inside_S)[..., None], 255.0)
        return x_NSSC.float()

    def _weights(self, side: int, other: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns weights [S, side] in units of 1 / ONE, and a mask of image pixels, bool [S].

        The weights are whole numbers in float64. The mask is False for padding. `other` is the
        length of the other side. Both sides may be symbolic integers of torch.export, so all
        arithmetic is on tensors: Python's min, max or `if` would fix their values.
        """

        def number(value: int) -> Tensor:
            return torch.scalar_tensor(value, dtype=torch.float64, device=device)

        # Source pixels [start, start + length) are resized to [offset, offset + scaled).
        length, scaled = number(side), number(self.size)
        start = offset = number(0)
        if self.resize == "crop":
            length = torch.minimum(length, number(other))
            start = ((number(side) - length) / 2).floor()
        elif self.resize == "pad":
            longest = torch.maximum(length, number(other))
            scaled = ((2 * scaled * length + longest) / (2 * longest)).floor().clamp(min=1.0)
            offset = ((self.size - scaled) / 2).floor()
        scale = length / scaled
        widest = scale.clamp(min=1.0)
        place_S = torch.arange(self.size, dtype=torch.float64, device=device) - offset
        inside_S = (place_S >= 0) & (place_S < scaled)
        centre_S1 = (place_S[:, None] + 0.5) * scale
        pixel_W = torch.arange(side, dtype=torch.float64, device=device) - start
        # Pillow's order of operations: another order would round some weights differently and
        # change pixels.
        weight_SW = (1 - ((pixel_W - centre_S1 + 0.5) * (1 / widest)).abs()).clamp(min=0)
        weight_SW = weight_SW * ((pixel_W >= 0) & (pixel_W < length))
        # Rows of the padding may have no weight at all: avoid 0 / 0.
        weight_SW = weight_SW / weight_SW.sum(dim=1, keepdim=True).clamp(min=1e-9)
        return (weight_SW * ONE + 0.5).floor(), inside_S


def _rounded(sums: Tensor) -> Tensor:
    return ((sums + ONE // 2) / ONE).floor().clamp(0, 255)


class EvaluationView(nn.Module):
    """Evaluation view of stored images: [N, S, S, 3] in 0 to 255 to [N, 3, size, size]."""

    def __init__(self, stored_size: int, views: ViewsSpec) -> None:
        super().__init__()
        self.weight_VS = nn.Buffer(resampling(views.size, stored_size))
        self.mean_C11 = nn.Buffer(torch.tensor(views.mean)[:, None, None])
        self.std_C11 = nn.Buffer(torch.tensor(views.std)[:, None, None])

    def forward(self, x_NSSC: Tensor) -> Tensor:
        """Returns the images resized with antialiasing and normalised, float32."""
        x_NCSS = x_NSSC.permute(0, 3, 1, 2) / 255
        x_NCVV = self.weight_VS @ x_NCSS @ self.weight_VS.T
        return (x_NCVV - self.mean_C11) / self.std_C11


class Head(nn.Module):
    """A fitted probe: features [N, D] to probabilities [N, C]."""

    def __init__(self, weight_DC: Tensor, bias_C: Tensor, *, is_set: bool) -> None:
        super().__init__()
        self.weight_DC, self.bias_C = nn.Buffer(weight_DC.clone()), nn.Buffer(bias_C.clone())
        self.is_set = is_set

    def forward(self, h_ND: Tensor) -> Tensor:
        """Returns probabilities, float32 [N, C]: of labels on their own for a set."""
        y_NC = torch.addmm(self.bias_C, h_ND, self.weight_DC)
        return y_NC.sigmoid() if self.is_set else y_NC.softmax(dim=1)


class ExportedModel(nn.Module):
    """The exported module.

    uint8 [N, H, W, 3] to {"embedding": [N, D], "labels": {name: [N, its number of outputs]}}.
    The embedding is what probes were fitted on: the encoder's features, or a head's output.
    """

    def __init__(self, network: Network, heads: Mapping[str, Head], spec: RunSpec) -> None:
        super().__init__()
        # Images that are no files are square already.
        how: Resize = getattr(spec.data, "resize", "squash")
        self.resize = StoredResize(store_size(spec.data, spec.views.size), how)
        self.view = EvaluationView(self.resize.size, spec.views)
        self.encoder = network.encoder
        head_of = dict(zip(network.names, network.heads, strict=True))
        self.projection = head_of[network.probed] if network.probed else nn.Identity()
        self.names = tuple(heads)
        self.heads = nn.ModuleList(heads.values())

    def forward(self, images: Tensor) -> dict[str, Tensor | dict[str, Tensor]]:
        """Returns the embedding, and the output of each label's probe."""
        h_ND: Tensor = self.projection(self.encoder(self.view(self.resize(images))))
        labels = {name: head(h_ND) for name, head in zip(self.names, self.heads, strict=True)}
        return {"embedding": h_ND, "labels": labels}
