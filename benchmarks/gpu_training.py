"""An epoch of MTCon with a ResNet-18 on one GPU, on data of the size of the papers' Zappos50k.

The data are 50,025 random images of 112 pixels (35,017 for training) with three tasks. Trainings
run in bfloat16 with batches of 64 and 512: eager and with CUDA graphs. Peer and limits
are as in `training`; the peer has a DataLoader worker per core of the host, and each limit is
compiled in the same way as the training that it limits. float32 convolutions use TF32, torch's
default on a GPU. The hours of 200 epochs, the papers' setting, are extrapolated from the median.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.machine import NO_GPU
from benchmarks.table import markdown
from benchmarks.timing import Times, interleaved, ratio
from benchmarks.training import (
    check_close_step,
    check_same_step,
    network_alone,
    run_of,
    spec_of,
    supcontrast,
)
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sources.base import LabelTable
from mtcon_ray.spec import with_values

NUM_IMAGES, SIZE, EPOCHS = 50_025, 112, 200
SPLITS = (0.7, 0.8)  # fractions of the items at which train and val end
CLASSES = {"shape": 4, "colour": 8, "texture": 19}
COMPILED = {"none": "mtcon-ray", "graphs": "mtcon-ray, graphs"}
HEADER = (
    f"an epoch, ResNet-18, {SIZE} px, bfloat16",
    "views per second",
    "ours is faster by",
    f"{EPOCHS} epochs, hours",
)


def random_images(num_images: int, size: int) -> Dataset:
    """Returns a data set in memory of uniform noise images with random labels."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (num_images, size, size, 3), np.uint8)
    place = generator.permutation(num_images) / num_images
    labels = {task: generator.integers(0, n, num_images) for task, n in CLASSES.items()}
    classes = {task: tuple(map(str, range(n))) for task, n in CLASSES.items()}
    names = tuple(map(str, range(num_images)))
    table = LabelTable(names, labels, classes, np.searchsorted(SPLITS, place).astype(np.int8))
    return Dataset(images, table, tuple(CLASSES), (), "random")


def measure(
    num_images: int = NUM_IMAGES,
    size: int = SIZE,
    batches: Sequence[int] = (64, 512),
    rounds: int = 3,
    encoder: str = "resnet18",
    compiled: Sequence[str] = tuple(COMPILED),
    device: torch.device | None = None,
) -> str:
    """Returns the table; without a GPU, one that says that nothing was run."""
    if device is None and not torch.cuda.is_available():
        return markdown(HEADER, [(f"on one GPU: {NO_GPU}", "", "", "")])
    device = device or torch.device("cuda")
    dataset = random_images(num_images, size)
    rows = []
    for batch_size in batches:
        with TemporaryDirectory() as folder:
            specs = {
                how: spec_of(num_images, encoder, "bfloat16", how, size=size, batch_size=batch_size)
                for how in compiled
            }
            check_same_step(specs["none"], dataset, Path(folder) / "check", device)
            runs = {h: run_of(s, dataset, Path(folder) / h, device) for h, s in specs.items()}
            exact = with_values(specs["none"], {"train.precision": "float32"})
            single = run_of(exact, dataset, Path(folder) / "float32", device)
            for run in runs.values():
                check_close_step(run, single)
            del single  # frees its GPU memory before the timing
            num_views = 2 * batch_size * (len(dataset.table.rows("train")) // batch_size)
            ways: dict[str, Callable[[], object]] = {}
            for how, run in runs.items():
                ways[COMPILED[how]] = partial(next, iter(run))
                ways[limit_of(how)] = partial(network_alone, run, num_views)
            ways["as SupContrast, float32"] = partial(next, supcontrast(runs["none"], dataset))
            times = interleaved(ways, rounds)
        rows += rows_of(f", batch {batch_size}", times, num_views)
    return markdown(HEADER, rows)


def limit_of(how: str) -> str:
    """Returns the table's name for the limit of one way to compile."""
    return f"limit of {COMPILED[how]}: the network alone"


def rows_of(title: str, times: dict[str, Times], num_views: int) -> list[tuple[str, ...]]:
    """Returns table rows; ratios are to the eager training, those of limits to what they limit."""
    ours = COMPILED["none"]
    base = dict.fromkeys(times, ours) | {limit_of(how): name for how, name in COMPILED.items()}
    return [
        (
            f"{name}{title}",
            f"{num_views / each.median:,.0f}",
            "1" if name == ours else str(ratio(each, times[base[name]])),
            f"{EPOCHS * each.median / 3600:.2f}",
        )
        for name, each in times.items()
    ]
