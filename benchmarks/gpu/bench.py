"""Settings of `python -m benchmarks gpu`, and its images, which are kept between runs."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.machine import finish
from benchmarks.training import run_of, spec_of
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import EACH

CLASSES = {"shape": 4, "colour": 8, "texture": 19}  # as in the papers' Zappos50k
SPLITS = (0.7, 0.8)  # fractions of the items at which train and val end
# Largest number of pixels of all images of a row.
PIXELS = 2**28

# A line of the table: its name, and a function that returns its result or raises an error.
Lines = Iterator[tuple[str, Callable[[], str]]]


@dataclass(frozen=True)
class Bench:
    """Device, sizes and durations of a run. `folder` is temporary, `kept` has the images."""

    device: torch.device
    folder: Path
    kept: Path
    encoder: str = "resnet18"
    half: str = "bfloat16"
    """The precision of trainings: float16 where the GPU has no bfloat16."""
    sizes: tuple[int, ...] = (64, 112)
    batches: tuple[int, ...] = (64, 512)
    networks: tuple[tuple[str, int, int], ...] = (
        ("resnet18", 64, 64),
        ("resnet18", 64, 512),
        ("resnet50", 224, 128),
        ("resnet18", 112, 64),
        ("resnet18", 112, 512),
    )
    """Encoder, side in pixels and batch of each network of `speed`, `network` and `peers`."""
    methods: tuple[str, ...] = tuple(EACH)
    compile: tuple[str, ...] = ("none", "graphs")
    num_images: int = 8192
    steps: int = 64
    """Least steps of an epoch of `peers`."""
    seconds: float = 2.0
    """Duration of each measurement of speed."""
    elements: int = 2**28
    """Size of the tensors whose copy is timed; the factors of the timed product have a quarter."""
    processes: tuple[int, ...] = (1, 2, 4, 8)
    winner: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Other fields of the job of `winner`."""
    warm_up: int = 8
    """Steps before a measurement: they choose algorithms, compile, and capture graphs."""

    def warm(self, run: Trainer) -> None:
        """Trains `warm_up` steps, which take longer than later steps."""
        for _ in range(self.warm_up):
            run._train_step()
        finish(self.device)

    def spec(
        self, encoder: str | None = None, *, size: int, batch_size: int, **changes: object
    ) -> RunSpec:
        """Returns the spec of an endless training; in `changes`, "__" stands for a dot."""
        given = self.num_images, encoder or self.encoder, self.half
        base = spec_of(*given, size=size, batch_size=batch_size)
        return with_values(base, {name.replace("__", "."): v for name, v in changes.items()})

    def stored(self, size: int) -> tuple[int, int]:
        """Returns number and side in pixels of the images for views of a side."""
        side = round(1.25 * size)
        return min(self.num_images, PIXELS // side**2), side

    def run(self, spec: RunSpec, name: str, **options: Any) -> Trainer:
        """Returns a new training on the device, on images a quarter larger than its views."""
        folder = self.folder / name
        dataset = kept_images(*self.stored(spec.views.size), self.kept)
        return run_of(spec, dataset, folder, self.device, **options)


def cache_folder() -> Path:
    """Returns the folder in which images are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mtcon-ray-benchmarks"


def random_images(num_images: int, side: int) -> Dataset:
    """Returns a data set in memory of uniform noise images with random labels."""
    noise = np.random.default_rng(0).integers(0, 256, (num_images, side, side, 3), np.uint8)
    return labelled(noise)


def kept_images(num_images: int, side: int, folder: Path) -> Dataset:
    """Returns the data set of `random_images`, with its images in a file of the folder."""
    path = folder / f"noise-{num_images}-{side}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Renamed when complete, because another process may look for it at the same time.
        part = folder / f"{path.stem}.{os.getpid()}.part"
        with part.open("wb") as file:
            np.save(file, random_images(num_images, side).images)
        part.replace(path)
    return labelled(np.load(path, mmap_mode="r"))


def labelled(images: np.ndarray, splits: tuple[float, float] = SPLITS) -> Dataset:
    """Returns a data set in memory of these images, with random labels and splits."""
    N = len(images)
    generator = np.random.default_rng(1)
    place = generator.permutation(N) / N
    labels = {task: generator.integers(0, n, N) for task, n in CLASSES.items()}
    classes = {task: tuple(map(str, range(n))) for task, n in CLASSES.items()}
    names = tuple(map(str, range(N)))
    table = LabelTable(names, labels, classes, np.searchsorted(splits, place).astype(np.int8))
    return Dataset(images, table, tuple(CLASSES), (), "random")
