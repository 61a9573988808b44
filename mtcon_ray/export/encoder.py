"""A trained encoder for use in other programs: images in, features out."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mtcon_ray.base.paths import CARD_FILE
from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.decoding import decode_image, make_square, plain_rgb
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.export.model import ExportedModel
from mtcon_ray.export.trained_network import load_network

if TYPE_CHECKING:
    from pandas import DataFrame

BATCH_SIZE = 256


class TrainedEncoder(nn.Module):
    """The encoder of a training, in eval mode, with the preparation of its images.

    `width` is the number of features, the same as for the probes.
    """

    def __init__(self, checkpoint: Path) -> None:  # or an export's model.json
        super().__init__()
        spec, network = load_network(checkpoint)
        self.data, self.is_export = spec.data, checkpoint.name == CARD_FILE
        self.model = ExportedModel(network, {}, spec)
        self.size, self.resize = self.model.resize.size, self.model.resize.resize
        # The heads of a method by name, as `project` returns their outputs.
        self.names, self.heads = network.names, network.heads
        self.eval().requires_grad_(False)
        self.width = self(torch.zeros(1, self.size, self.size, 3, dtype=torch.uint8)).shape[1]

    def forward(self, images: Tensor) -> Tensor:
        """Returns features, float32 [N, width], of images, uint8 [N, H, W, 3] of any size.

        Raises ValueError for images of another shape or type.
        """
        _check_pixels("images must be", images, "[N, H, W, 3]")
        embedding: Tensor = self.model(images)["embedding"]
        return embedding

    def transform(self, images: Iterable[Any] | np.ndarray | Tensor) -> np.ndarray:
        """Returns features, float32 [N, width], prepared as in the training's probes.

        Images are an array, uint8 [N, H, W, 3], or an iterable of paths, PIL images and arrays,
        uint8 [H, W, 3], which may differ in size. Raises UnreadableImageError if a file is not an
        image, ValueError for arrays of another shape or type.
        """
        found = [rows["embedding"] for rows in self._batches(images)]
        return torch.cat(found).numpy() if found else np.zeros((0, self.width), np.float32)

    def embed(self, paths: Iterable[str | Path]) -> "DataFrame":
        """Returns the table of `mtcon-ray embed`, a row per image file.

        Its columns are `path`, `embedding` and `heads/<name>` of each head of the method, with an
        array per image. Raises UnreadableImageError if a file is not an image.
        """
        import pandas as pd

        paths = paths if isinstance(paths, str) else [*paths]  # `_batches` refuses a text
        columns: dict[str, list[Any]] = {"path": [str(path) for path in paths]}
        for rows in self._batches(paths):
            for name, values in rows.items():
                columns.setdefault(name, []).extend(values.numpy())
        return pd.DataFrame(columns)

    def project(self, stored_NSSC: Tensor) -> dict[str, Tensor]:
        """Returns the columns `embedding` and `heads/<name>`, float32 [N, width] on the CPU.

        Images are uint8 [N, size, size, 3], as the training stores them.
        """
        device = next(self.buffers()).device
        with torch.inference_mode():
            h_ND = self.model.encoder(self.model.view(stored_NSSC.to(device).float()))
            found = {"embedding": self.model.projection(h_ND)}
            for name, head in zip(self.names, self.heads, strict=True):
                found[f"heads/{name}"] = head(h_ND)
            return {name: rows.float().cpu() for name, rows in found.items()}

    def _batches(self, images: Iterable[Any]) -> Iterator[dict[str, Tensor]]:
        if isinstance(images, str):
            raise ValueError(f"images must be a list, got the text {images!r}")
        remaining = iter(images)
        while batch := list(islice(remaining, BATCH_SIZE)):
            yield self.project(self.stored(batch))

    def stored(self, images: Iterable[Any]) -> Tensor:
        """Returns images as the training stores them, uint8 [N, size, size, 3].

        Takes images and raises errors as `transform` does.
        """
        return torch.stack([self._stored(image) for image in images])

    def _stored(self, image: Any) -> Tensor:
        """Returns an image as the cache stores it, uint8 [size, size, 3]."""
        if isinstance(image, str | Path):
            with open_regular(image) as file:
                try:
                    return torch.tensor(decode_image(file.read(), self.size, self.resize))
                except UnreadableImageError as error:
                    raise UnreadableImageError(f"{image}: {error}") from None
        if not isinstance(image, Image.Image):
            pixels = np.asarray(image.cpu() if isinstance(image, Tensor) else image)
            _check_pixels("an image must be a path, a PIL image or an array", pixels, "[H, W, 3]")
            image = Image.fromarray(pixels)
        return torch.tensor(np.asarray(make_square(plain_rgb(image), self.size, self.resize)))


def _check_pixels(what: str, pixels: np.ndarray | Tensor, shape: str) -> None:
    """Raises ValueError unless the array is uint8 and has a shape such as "[N, H, W, 3]"."""
    is_bytes, num_axes = str(pixels.dtype).endswith("uint8"), shape.count(",") + 1
    if not is_bytes or pixels.ndim != num_axes or pixels.shape[-1] != 3:
        raise ValueError(f"{what} uint8 {shape}, got {pixels.dtype} {list(pixels.shape)}")
