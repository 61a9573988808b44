"""A trained encoder for use in other programs: images in, features out."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.dataset import store_size
from mtcon_ray.data.decoding import decode_image, make_square
from mtcon_ray.export.model import ExportedModel
from mtcon_ray.export.trained_network import load_network

BATCH_SIZE = 256


class TrainedEncoder(nn.Module):
    """The encoder of a training, in eval mode, with the preparation of its images.

    `width` is the number of features, the same as for the probes.
    """

    def __init__(self, checkpoint: Path) -> None:
        super().__init__()
        spec, network = load_network(checkpoint)
        self.resize = spec.data.made_square
        self.size = store_size(spec.data, spec.views.size)
        self.model = ExportedModel(network, {}, spec.views, self.size, self.resize)
        self.eval().requires_grad_(False)
        with torch.inference_mode():
            blank = torch.zeros(1, self.size, self.size, 3, dtype=torch.uint8)
            self.width = self(blank).shape[1]

    def forward(self, images: Tensor) -> Tensor:
        """Returns features, float32 [N, width], of images, uint8 [N, H, W, 3] of any size."""
        embedding: Tensor = self.model(images)["embedding"]
        return embedding

    def transform(self, images: Iterable[Any] | np.ndarray | Tensor) -> np.ndarray:
        """Returns features, float32 [N, width], prepared as in the training's probes.

        Images are an array, uint8 [N, H, W, 3], or an iterable of paths, PIL images and arrays,
        uint8 [H, W, 3], which may differ in size. Raises UnreadableImageError if a file is not an
        image, ValueError for arrays of another shape or type.
        """
        device = next(self.buffers()).device
        stored = (self._stored(image) for image in images)
        found = []
        with torch.inference_mode():
            while batch := list(islice(stored, BATCH_SIZE)):
                found.append(self(torch.stack(batch).to(device)).cpu())
        return torch.cat(found).numpy() if found else np.zeros((0, self.width), np.float32)

    def _stored(self, image: Any) -> Tensor:
        """Returns an image as the cache stores it, uint8 [size, size, 3]."""
        if isinstance(image, str | Path):
            with open_regular(image) as file:
                return torch.tensor(decode_image(file.read(), self.size, self.resize))
        if not isinstance(image, Image.Image):
            pixels = np.asarray(image)
            if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
                raise ValueError(
                    "an image must be a path, a PIL image or an array uint8 [H, W, 3], got "
                    f"{pixels.dtype} {list(pixels.shape)}"
                )
            image = Image.fromarray(pixels)
        return torch.tensor(np.asarray(make_square(image.convert("RGB"), self.size, self.resize)))
