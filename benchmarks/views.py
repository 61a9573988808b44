"""Two augmented views of every image at 64 pixels on the CPU, in images' views per second.

Peers: torchvision's transforms on PIL images in a DataLoader with a worker per core, as
SupContrast's data loading is, from JPEG files and from decoded images; and lightly's transforms,
which are torchvision's but for the blur, Pillow's faster one of box filters. The same operations
with the same strengths; that torchvision's give the same distribution is tested in
tests/data/test_views.py and test_view_moments.py. The limit is memory: the stored images read once
and the views written once, by a copy.
"""

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from benchmarks.machine import finish, usable_cores
from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.training.device import keep_freed_memory

BATCH = 64
STORED = 80  # side of the stored images, a quarter more than a view's
CPU = torch.device("cpu")
OURS, LIMIT = "mtcon-ray", "limit: memory bandwidth"


def header(size: int) -> tuple[str, ...]:
    """The table's."""
    return f"two views of {size} px", "views per second", "ours is faster by"


class Photographs(Dataset[Tensor]):
    """Images as JPEG or decoded, each in two views by the given transform of one image."""

    def __init__(
        self,
        images: list[bytes] | np.ndarray,
        transform: Callable[[Image.Image], Sequence[Any]],
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
        return torch.stack(list(self.transform(image)))


class TwoCrops:
    """A transform twice, as SupContrast's class of this name."""

    def __init__(self, transform: Callable[[Image.Image], Tensor]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> list[Tensor]:
        return [self.transform(image), self.transform(image)]


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


def lightly_recipe(spec: ViewsSpec) -> Callable[[Image.Image], Sequence[Any]] | None:
    """lightly's transforms of a spec; None, with a word, where it is not installed."""
    try:
        from lightly.transforms.simclr_transform import SimCLRTransform
    except ImportError:
        print("lightly is not installed: its rows are left out", flush=True)
        return None
    found: Callable[[Image.Image], Sequence[Any]] = SimCLRTransform(
        input_size=spec.size,
        cj_prob=spec.jitter,
        cj_bright=spec.brightness,
        cj_contrast=spec.contrast,
        cj_sat=spec.saturation,
        cj_hue=spec.hue,
        min_scale=spec.crop_scale[0],
        random_gray_scale=spec.grayscale,
        gaussian_blur=spec.blur,
        sigmas=spec.blur_sigma,
        hf_prob=spec.flip,
        normalize={"mean": list(spec.mean), "std": list(spec.std)},
    )
    return found


def measure(num_images: int = 2048, rounds: int = 5) -> str:
    """The table, without blur and with it."""
    keep_freed_memory()  # as a training does
    decoded = drawn_photographs(num_images, STORED)
    rows = []
    for title, blur in (("", 0.0), (", half of them blurred", 0.5)):
        spec = ViewsSpec(size=64, blur=blur)
        rows += rows_of(title, decoded, spec, peers(decoded, spec), BATCH, CPU, rounds)
    return markdown(header(64), rows)


def peers(decoded: np.ndarray, spec: ViewsSpec) -> dict[str, Callable[[], None]]:
    """torchvision's way, from files and from decoded images, and lightly's from the latter."""
    encoded, twice = [_jpeg(image) for image in decoded], TwoCrops(recipe(spec))
    found = {
        "torchvision, decoding JPEG": loading(Photographs(encoded, twice), BATCH),
        "torchvision, decoded images": loading(Photographs(decoded, twice), BATCH),
    }
    lightly = lightly_recipe(spec)
    if lightly is not None:
        found["lightly, decoded images"] = loading(Photographs(decoded, lightly), BATCH)
    return found


def rows_of(
    title: str,
    images: np.ndarray,
    spec: ViewsSpec,
    peers: dict[str, Callable[[], None]],
    batch: int,
    device: torch.device,
    rounds: int,
) -> list[tuple[str, str, str]]:
    """Ours on the device, where the images lie, the peers and the limit, in turns."""
    stored = torch.from_numpy(images).to(device)
    ours: dict[str, Callable[[], None]] = {OURS: partial(make_all, stored, spec, batch)}
    times = interleaved({**ours, **peers, LIMIT: moving(stored, spec)}, rounds)
    return [
        (
            f"{name}{title}",
            f"{2 * len(images) / each.median:,.0f}",
            "1" if name == OURS else str(ratio(each, times[OURS])),
        )
        for name, each in times.items()
    ]


def drawn_photographs(num_images: int, side: int) -> np.ndarray:
    """Smooth coloured images with some grain, uint8 [N, S, S, 3], photograph-like."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(num_images, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=side, mode="bicubic").clamp_(0, 1)
    grain = 0.03 * torch.randn(smooth.shape, generator=generator)
    images = ((smooth + grain).clamp_(0, 1) * 255).round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def make_all(images: Tensor, spec: ViewsSpec, batch: int) -> None:
    """Ours, batch by batch as a training step asks for them."""
    generator = torch.Generator().manual_seed(0)
    for some in images.split(batch):
        drawn = draw_parameters(2 * len(some), images.shape[1], spec, generator)
        make_views(some, drawn, spec)
    finish(images.device)


def moving(images: Tensor, spec: ViewsSpec) -> Callable[[], None]:
    """As many bytes through memory as the images and their views have; a copy moves each twice."""
    view_bytes = 2 * len(images) * 3 * spec.size**2 * 4
    source = images.new_ones((images.nbytes + view_bytes) // 2)
    goal = torch.empty_like(source)

    def run() -> None:
        goal.copy_(source)
        finish(images.device)

    return run


def loading(photographs: Photographs, batch: int) -> Callable[[], None]:
    """An epoch of a DataLoader whose workers live on between epochs."""
    loader = DataLoader(
        photographs, batch, num_workers=usable_cores(), persistent_workers=True, pin_memory=False
    )

    def run() -> None:
        for _ in loader:
            pass

    return run


def _jpeg(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
