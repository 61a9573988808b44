"""Two augmented views of every image at 64 pixels on the CPU, in views per second.

The peers are torchvision's transforms on PIL images in a DataLoader with a worker per core, as in
SupContrast, from JPEG files and from decoded images, and lightly's transforms. Lightly's transforms
differ from torchvision's only in the blur, for which they use Pillow's faster box filters. All have
the same operations and strengths. tests/data/test_views.py and test_view_moments.py check the
distribution of our views against torchvision's. The limit is memory bandwidth: a copy of as many
bytes as reading the stored images once and writing the views once.
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
from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.spec.views import ViewsSpec
from mtcon_ray.training.device import keep_freed_memory

BATCH = 64
STORED = 80  # side of the stored images in pixels, a quarter more than a view's
OURS, LIMIT = "mtcon-ray", "limit: memory bandwidth"


def header(size: int) -> tuple[str, ...]:
    """Returns the table's header."""
    return f"two views of {size} px", "views per second", "ours is faster by"


class Photographs(Dataset[Tensor]):
    """Data set of JPEG or decoded images; an item is the views [2, C, H, W] of an image."""

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
    """Two results of a random transform, like SupContrast's class TwoCropTransform."""

    def __init__(self, transform: Callable[[Image.Image], Tensor]) -> None:
        self.transform = transform

    def __call__(self, image: Image.Image) -> list[Tensor]:
        return [self.transform(image), self.transform(image)]


def recipe(spec: ViewsSpec) -> Callable[[Image.Image], Tensor]:
    """Returns torchvision's transforms of a spec, in the order of SupContrast, SimCLR and BYOL."""
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
    if spec.solarise:
        threshold = 255 * spec.solarise_threshold
        steps.append(transforms.RandomSolarize(threshold, spec.solarise))
    steps += [transforms.ToTensor(), transforms.Normalize(spec.mean, spec.std)]
    composed: Callable[[Image.Image], Tensor] = transforms.Compose(steps)
    return composed


def lightly_recipe(spec: ViewsSpec) -> Callable[[Image.Image], Sequence[Any]] | None:
    """Returns lightly's transforms of a spec, or None and a printed note without lightly."""
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
    """Returns the table, without and with blur."""
    keep_freed_memory()  # as in training: otherwise glibc returns memory to the system each batch
    decoded = drawn_photographs(num_images, STORED)
    rows = []
    for title, blur in (("", 0.0), (", half of them blurred", 0.5)):
        spec = ViewsSpec(size=64, blur=blur)
        rows += rows_of(title, decoded, spec, peers(decoded, spec), rounds)
    return markdown(header(64), rows)


def peers(decoded: np.ndarray, spec: ViewsSpec) -> dict[str, Callable[[], None]]:
    """Returns an epoch of each peer: torchvision from JPEG and decoded images, and lightly."""
    encoded, twice = [jpeg(image) for image in decoded], TwoCrops(recipe(spec))
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
    rounds: int,
) -> list[tuple[str, str, str]]:
    """Times our views, the peers and the limit in turns, and returns table rows."""
    stored = torch.from_numpy(images)
    ours: dict[str, Callable[[], object]] = {OURS: partial(make_all, stored, spec, BATCH)}
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
    """Returns smooth coloured images with grain, like photographs, uint8 [N, S, S, 3]."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(num_images, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=side, mode="bicubic").clamp_(0, 1)
    grain = 0.03 * torch.randn(smooth.shape, generator=generator)
    images = ((smooth + grain).clamp_(0, 1) * 255).round().to(torch.uint8)
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def make_all(images: Tensor, spec: ViewsSpec, batch: int) -> None:
    """Makes our views of all images, batch by batch as in training."""
    generator = torch.Generator().manual_seed(0)
    for some in images.split(batch):
        drawn = draw_parameters(2 * len(some), images.shape[1], spec, generator)
        make_views(some, drawn, spec)
    finish(images.device)


def moving(images: Tensor, spec: ViewsSpec) -> Callable[[], object]:
    """Returns a copy with the same number of moved bytes as reading images and writing views.

    The copied tensor has half of these bytes, because a copy both reads and writes each byte.
    """
    view_bytes = 2 * len(images) * 3 * spec.size**2 * 4
    source = images.new_ones((images.nbytes + view_bytes) // 2)
    goal = torch.empty_like(source)

    return partial(goal.copy_, source)


def loading(photographs: Photographs, batch: int) -> Callable[[], None]:
    """Returns a function that runs an epoch of a DataLoader with persistent workers."""
    loader = DataLoader(
        photographs, batch, num_workers=usable_cores(), persistent_workers=True, pin_memory=False
    )

    def run() -> None:
        for _ in loader:
            pass

    return run


def jpeg(image: np.ndarray) -> bytes:
    """Returns an image as a JPEG file of quality 90."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()
