"""Two augmented views of every image at 64 pixels on the CPU, in images' views per second.

Peers: torchvision's transforms on PIL images in a DataLoader with a worker per core, as
SupContrast's data loading is (lightly's transforms are these too), from JPEG files and from
decoded images. The same operations with the same strengths; that they give the same distribution is
tested in tests/data/test_views.py.
"""

import io
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.machine import usable_cores
from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.training.device import keep_freed_memory

BATCH = 64
STORED = 80  # side of the stored images, a quarter more than a view's
HEADER = ("two views of 64 px", "views per second", "ours is faster by")


class Photographs(Dataset[Tensor]):
    """Images as JPEG or decoded, each in two views by the given transform."""

    def __init__(
        self, images: list[bytes] | np.ndarray, transform: Callable[[Image.Image], Tensor]
    ) -> None:
        self.images = images
        self.transform = transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        stored = self.images[index]
        image = (
            Image.open(io.BytesIO(stored)).convert("RGB")
            if isinstance(stored, bytes)
            else Image.fromarray(stored)
        )
        return torch.stack([self.transform(image), self.transform(image)])


def recipe(spec: ViewsSpec) -> Callable[[Image.Image], Tensor]:
    """torchvision's transforms of a spec, as SupContrast and SimCLR put them together."""
    steps: list[Callable[..., object]] = [
        transforms.RandomResizedCrop(spec.size, spec.crop_scale, spec.crop_ratio),
        transforms.RandomHorizontalFlip(spec.flip),
        transforms.RandomApply(
            [transforms.ColorJitter(spec.brightness, spec.contrast, spec.saturation, spec.hue)],
            spec.jitter,
        ),
        transforms.RandomGrayscale(spec.grayscale),
    ]
    if spec.blur:
        kernel = 2 * max(1, spec.size // 20) + 1
        blurring = transforms.GaussianBlur(kernel, spec.blur_sigma)
        steps.append(transforms.RandomApply([blurring], spec.blur))
    steps += [transforms.ToTensor(), transforms.Normalize(spec.mean, spec.std)]
    composed: Callable[[Image.Image], Tensor] = transforms.Compose(steps)
    return composed


def measure(num_images: int = 2048, rounds: int = 5) -> str:
    """The table, without blur and with it."""
    keep_freed_memory()  # as a training does
    decoded = drawn_photographs(num_images)
    encoded = [_jpeg(image) for image in decoded]
    rows = []
    for title, blur in (("", 0.0), (", half of them blurred", 0.5)):
        spec = ViewsSpec(size=64, blur=blur)
        ways: dict[str, Callable[[], None]] = {
            "mtcon-ray": partial(make_all, torch.from_numpy(decoded), spec),
            "torchvision, decoding JPEG": _loading(Photographs(encoded, recipe(spec))),
            "torchvision, decoded images": _loading(Photographs(decoded, recipe(spec))),
        }
        times = interleaved(ways, rounds)
        rows += [
            (
                f"{name}{title}",
                f"{2 * num_images / each.median:,.0f}",
                "1" if name == "mtcon-ray" else str(ratio(each, times["mtcon-ray"])),
            )
            for name, each in times.items()
        ]
    return markdown(HEADER, rows)


def drawn_photographs(num_images: int) -> np.ndarray:
    """Smooth coloured images with some grain, uint8 [N, S, S, 3], photograph-like."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(num_images, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=STORED, mode="bicubic").clamp_(0, 1)
    grain = 0.03 * torch.randn(smooth.shape, generator=generator)
    images = ((smooth + grain).clamp_(0, 1) * 255).round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def make_all(images: Tensor, spec: ViewsSpec) -> None:
    """Ours, batch by batch as a training step asks for them."""
    generator = torch.Generator().manual_seed(0)
    for start in range(0, len(images), BATCH):
        batch = images[start : start + BATCH]
        make_views(batch, draw_parameters(2 * len(batch), STORED, spec, generator), spec)


def _loading(photographs: Photographs) -> Callable[[], None]:
    """An epoch of a DataLoader whose workers live on between epochs."""
    loader = DataLoader(
        photographs, BATCH, num_workers=usable_cores(), persistent_workers=True, pin_memory=False
    )

    def run() -> None:
        for _ in loader:
            pass

    return run


def _jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
