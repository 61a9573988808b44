"""Decoding of JPEG files of 500 x 375 pixels to the stored squares, in images per second and core.

The peers are Pillow's and torchvision's ways of a data set in Python. All read from memory, and all
squash the image. Only ours turns photographs as their EXIF data say, finds damage that Pillow
tolerates, and reads colour spaces other than RGB.

Then the decoding of a folder by the driver alone, and with another node of a Ray cluster. Each has
a single core of this machine.
"""

import io
import os
import warnings
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from unittest.mock import patch

import numpy as np
import ray
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms.v2.functional import resize

from benchmarks.faults.nodes import cluster_of, raylet_of
from benchmarks.table import markdown
from benchmarks.timing import Times, interleaved, ratio
from benchmarks.views import drawn_photographs
from mtcon_ray.cluster.nodes import lent_decoders
from mtcon_ray.data import image_cache
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.sources import SOURCES, DataSource

WIDTH, HEIGHT = 500, 375
SIZES = (64, 112, 224)
CLOSE = 2.0  # levels of 255, in the mean
NODES_HEADER = ("Files of a folder, 500 x 375 px", "images per second", "faster than alone by")
HEADER = ("JPEG of 500 x 375 px", "images per second", "ours is faster by")


def by_pillow(content: bytes, size: int) -> np.ndarray:
    """Decodes as a script does with Pillow, to uint8 [S, S, 3]."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def by_torchvision(content: bytes, size: int) -> np.ndarray:
    """Decodes as a script does with torchvision, to uint8 [S, S, 3]."""
    data = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    # torchvision 0.29 announces the removal of its decoders.
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        whole = decode_jpeg(data, ImageReadMode.RGB)
    image = resize(whole, [size, size], antialias=True)
    pixels: np.ndarray = image.permute(1, 2, 0).numpy()
    return pixels


def files(number: int) -> list[bytes]:
    """Returns JPEG files of drawn photographs."""
    found = []
    for pixels in drawn_photographs(number, WIDTH)[:, :HEIGHT]:
        buffer = io.BytesIO()
        Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
        found.append(buffer.getvalue())
    return found


WAYS: dict[str, Callable[[bytes, int], np.ndarray]] = {
    "mtcon-ray": decode_image,
    "Pillow": by_pillow,
    "torchvision": by_torchvision,
}


def folder_of(place: Path, number: int) -> DataSource:
    """Returns the source of a new folder of this many files in two classes."""
    for row, content in enumerate(islice(cycle(files(64)), number)):
        path = place / f"class {row % 2}" / f"{row:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    source = SOURCES["folder"]
    return source(source.Spec(kind="folder", images=str(place), tasks=["class"]))


def measure_nodes(number: int, rounds: int, sizes: tuple[int, ...]) -> str:
    """Returns the table of a driver alone on a core, and beside a node with another core."""
    cores, rows = os.sched_getaffinity(0), []
    here, there = sorted(cores)[:2]
    ways: dict[str, image_cache.Lent] = {
        "alone": image_cache.lent_nothing,
        "two nodes": partial(lent_decoders, lambda _: None),
    }

    def rate(source: DataSource, size: int, lent: image_cache.Lent) -> float:
        """Returns the images per second between the first and the last part."""
        seen: list[tuple[float, int]] = []

        def tell(done: int, _: int) -> None:
            seen.append((perf_counter(), done))

        with TemporaryDirectory() as store:
            image_cache.open_image_cache(source, number, size, Path(store), tell, lent)
        return (number - seen[0][1]) / (seen[-1][0] - seen[0][0])

    with TemporaryDirectory() as place, cluster_of(0, 1) as cluster:
        source = folder_of(Path(place), number)
        for node in cluster.worker_nodes:  # the processes of its tasks inherit the core
            os.sched_setaffinity(raylet_of(node), {there})
        os.sched_setaffinity(0, {here})
        variables = patch.dict(os.environ, RAY_ADDRESS=cluster.address)
        with variables, patch.object(image_cache, "MANY", 0), ray.init(log_to_driver=False):
            for size in sizes:
                rates: dict[str, list[float]] = {name: [] for name in ways}
                for _ in range(rounds + 1):
                    for name, lent in ways.items():
                        rates[name].append(rate(source, size, lent))
                # The first round started the processes of the node, which takes two seconds.
                times = {n: Times(tuple(1 / r for r in each[1:])) for n, each in rates.items()}
                for name, each in times.items():
                    text = "1" if name == "alone" else str(ratio(times["alone"], each))
                    rows.append((f"to {size} px: {name}", f"{1 / each.median:,.0f}", text))
        os.sched_setaffinity(0, cores)
    return markdown(NODES_HEADER, rows)


def measure(number: int = 64, rounds: int = 7, num_files: int = 8192) -> str:
    """Returns the tables. Raises ValueError if a way gives another image than ours."""
    jpegs, rows = files(number), []

    def decode_all(way: Callable[[bytes, int], np.ndarray], size: int) -> None:
        for content in jpegs:
            way(content, size)

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for size in SIZES:
        expected = decode_image(jpegs[0], size).astype(int)
        for name, way in WAYS.items():
            if (differs := np.abs(way(jpegs[0], size) - expected).mean()) > CLOSE:
                raise ValueError(f"{name} differs by {differs:.1f} levels")
        times = interleaved(
            {name: partial(decode_all, w, size) for name, w in WAYS.items()}, rounds
        )
        for name, each in times.items():
            text = "1" if name == "mtcon-ray" else str(ratio(each, times["mtcon-ray"]))
            rows.append((f"to {size} px: {name}", f"{number / each.median:,.0f}", text))
    torch.set_num_threads(before)
    table = markdown(HEADER, rows)
    return f"{table}\n{measure_nodes(num_files, max(1, rounds // 2), (64, 224))}"
