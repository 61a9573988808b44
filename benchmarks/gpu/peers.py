"""Row `peers`: our training and those of the guides of other packages, on the same device.

All systems have the same images, encoder, batch, strengths of views, learning rate, and all CPU
cores. The first epoch starts with JPEG files and includes what a system does once: start of
workers, decoding, compilation by Inductor, capture of graphs. Imports, and the compilation of our
views by Triton, a second or two, come before. Later epochs have decoded images. The peers with
views on the device are compiled with graphs, and train with autocast. torchvision's views on the
device are alike for all images of a batch. Peak memory is that of torch's allocator, and the busy
share is NVML's: the share of time with a running kernel.
"""

import gc
import tarfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from shutil import rmtree
from statistics import fmean, median
from time import perf_counter

import numpy as np
import pandas as pd
import torch
import torch._inductor.config

from benchmarks import machine
from benchmarks.gpu.bench import Bench, Lines, labelled
from benchmarks.gpu.speed import busy_shares
from benchmarks.peers import training_loops as loops
from benchmarks.training import opened, run_of
from benchmarks.views import drawn_photographs
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.training.trainer import Trainer

# Images that differ. Others repeat them.
DIFFERENT = 512
LEAST_EPOCHS = 3
OURS = "mtcon-ray, graphs"
# Packages of the peers.
PACKAGES = ("kornia", "lightly")
MODULES = ("kornia.augmentation", "lightly.loss", "lightly.transforms")

Way = Callable[[loops.Images], loops.Epoch]


def peers(bench: Bench) -> Lines:
    """Times an epoch of each system, for each network."""
    for network in bench.networks:
        case = Case(bench, *network)
        for name, way in case.ways().items():
            yield f"{case.title}: {name}", partial(case.measure, way)


@dataclass
class Case:
    """A network with its images, which are made when the first system needs them."""

    bench: Bench
    encoder: str
    size: int
    batch_size: int

    @property
    def title(self) -> str:
        """The network and the kind of images in words."""
        kind = "photographs" if self.archive.exists() else "drawn images"
        return f"{self.encoder}, {self.size} px, batch {self.batch_size}, {kind}"

    @property
    def archive(self) -> Path:
        """The photographs, which need not exist."""
        return machine.PHOTOS / "images.tar.gz"

    @cached_property
    def different(self) -> np.ndarray:
        """Different images, uint8 [DIFFERENT, S, S, 3], a quarter larger than the views.

        These are photographs where they are at hand, else drawn.
        """
        side = round(1.25 * self.size)
        if not self.archive.exists():
            return drawn_photographs(DIFFERENT, side)
        with tarfile.open(self.archive) as files:
            found = (file for file in map(files.extractfile, files) if file is not None)
            return np.stack([decode_image(f.read(), side) for f in islice(found, DIFFERENT)])

    @cached_property
    def images(self) -> np.ndarray:
        """Decoded images, uint8 [N, S, S, 3]."""
        number = max(self.bench.num_images, self.bench.steps * self.batch_size)
        return self.different[np.arange(number) % len(self.different)]

    @cached_property
    def files(self) -> list[bytes]:
        """The images as JPEG files in memory."""
        different = loops.jpegs(self.different)
        return [different[i % len(different)] for i in range(len(self.images))]

    @cached_property
    def on_disk(self) -> RunSpec:
        """The spec of a CSV and a folder with the images as JPEG files."""
        folder = self.bench.folder / f"{self.title}, files"
        folder.mkdir()
        files = [*self.files, *self.files[:2]]  # a data set has images of val and test
        splits = ["train"] * len(self.files) + ["val", "test"]
        table = pd.DataFrame({"image": [f"{i}.jpg" for i in range(len(files))], "split": splits})
        for task in self.labels.tasks:
            table[task] = np.resize(self.labels.table.labels[task], len(files))
        table.to_csv(folder / "labels.csv", index=False)
        for name, each in zip(table["image"], files, strict=True):
            (folder / name).write_bytes(each)
        data = {
            "kind": "table",
            "csv": str(folder / "labels.csv"),
            "images": str(folder),
            "tasks": self.labels.tasks,
            "split_column": "split",
        }
        raw = {"name": "peers", "data": data, "views": {"size": self.size}}
        return parse_spec({**raw, "method": {"name": "mtcon"}})

    @cached_property
    def labels(self) -> Dataset:
        """The images with random labels, all in the train split."""
        return labelled(self.images, splits=(1.0, 1.0))

    @cached_property
    def like(self) -> Trainer:
        """A training without steps: its network and spec are those of all systems."""
        return self.trainer(self.labels, "none")

    @cached_property
    def ours(self) -> tuple[float, ...]:
        """Seconds of our epochs with graphs."""
        epoch = self.train_ours("graphs", self.images)
        epoch()
        return self.seconds(epoch)

    def trainer(self, dataset: Dataset, how: str) -> Trainer:
        """Returns an unstarted training of ours, without checkpoints and evaluations."""
        folder = self.bench.folder / f"{self.title}, {how}"
        rmtree(folder, ignore_errors=True)
        sizes = {"size": self.size, "batch_size": self.batch_size}
        spec = self.bench.spec(self.encoder, **sizes, train__compile=how)
        return run_of(spec, dataset, folder, self.bench.device)

    def ways(self) -> dict[str, Way]:
        """Returns the systems, ours first."""

        def peer(train: Callable[..., loops.Epoch], **options: bool) -> Way:
            return lambda images: train(self.like, self.labels, images, **options)

        def on_the_device(make: loops.MakeViews) -> Way:
            compiled = cache(lambda: loops.OnTheDevice(self.like))
            return lambda images: compiled().train(self.labels, images, make)

        return {
            OURS: partial(self.train_ours, "graphs"),
            "mtcon-ray, no graphs": partial(self.train_ours, "none"),
            "as SupContrast, float32": peer(loops.as_supcontrast, half=False),
            "as SupContrast, autocast": peer(loops.as_supcontrast, half=True),
            "as lightly's SimCLR, autocast": peer(loops.as_lightly),
            "kornia on the device": on_the_device(loops.by_kornia),
            "torchvision on the device": on_the_device(loops.by_torchvision),
        }

    def train_ours(self, how: str, images: loops.Images) -> loops.Epoch:
        """Returns our epoch. JPEG files are read from a folder, as a user's are."""
        if isinstance(images, np.ndarray):
            return partial(next, iter(self.trainer(self.labels, how)))
        store = Path(self.bench.folder / f"{self.title}, decoded")
        rmtree(store, ignore_errors=True)
        return partial(next, iter(self.trainer(opened(self.on_disk, store), how)))

    def measure(self, way: Way) -> str:
        """Returns the columns of a system. A system without its package is not run."""
        device, files, ours = self.bench.device, self.files, median(self.ours)
        on_gpu = device.type == "cuda"
        _ = self.like, self.on_disk  # made before the clock starts
        for package in MODULES:
            with suppress(ModuleNotFoundError):
                import_module(package)
        torch.compiler.reset()  # frees the graphs of the peer before
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(device) if on_gpu else 0
        try:
            # A peer must not find the code that another one has compiled.
            with torch._inductor.config.patch(force_disable_caches=True):
                begin = perf_counter()
                way(files)()
            first = perf_counter() - begin
        except ModuleNotFoundError as error:
            if error.name not in PACKAGES:
                raise
            return f"not run: {error}"
        gc.collect()
        torch.cuda.empty_cache()
        if on_gpu:
            torch.cuda.reset_peak_memory_stats(device)
        epoch = way(self.images)
        epoch()
        with busy_shares(device) as shares:
            seconds = median(self.seconds(epoch))
        peak = torch.cuda.max_memory_reserved(device) - before if on_gpu else 0
        busy = f"{fmean(share for _, share in shares):.0f} %" if shares else "unknown"
        num_views = 2 * self.batch_size * (len(self.images) // self.batch_size)
        return (
            f"{num_views / seconds:,.0f} views/s, an epoch {seconds:.2f} s, the first {first:.1f} "
            f"s, {peak / 1e9:.1f} GB, GPU busy {busy}, "
            f"{seconds / ours:.2f} of the time of ours with graphs"
        )

    def seconds(self, epoch: loops.Epoch) -> tuple[float, ...]:
        """Returns the seconds of some epochs."""
        found: list[float] = []
        while len(found) < LEAST_EPOCHS or sum(found) < self.bench.seconds:
            begin = perf_counter()
            epoch()
            found.append(perf_counter() - begin)
        return tuple(found)
