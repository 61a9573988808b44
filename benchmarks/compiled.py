"""What torch.compile adds on the CPU: to views, losses of a small batch, an epoch in bfloat16.

Ours and its peer each as it is and compiled; the limit of a compiled epoch is the compiled network
alone. Compiling is not in the times: it is over before the first that counts.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch import Tensor

from benchmarks.losses import check_equal, drawn, ours_and_supcontrast, trained
from benchmarks.table import markdown
from benchmarks.timing import interleaved, ratio
from benchmarks.training import (
    check_close_step,
    network_alone,
    opened,
    run_of,
    spec_of,
    supcontrast,
)
from benchmarks.views import BATCH, STORED, drawn_photographs, make_all, peers
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.fusing import fused
from mtcon_ray.training.device import keep_freed_memory

REPEATS = 30
LOSSES = ("3 tasks, forward and backward, width 128", "ms", "ours, compiled, is faster by")
VIEWS = ("two views of 64 px", "views per second", "ours, compiled, is faster by")
EPOCH = (
    "an epoch, ResNet-18, 64 px, batch 64, bfloat16",
    "views per second",
    "ours, compiled, is faster by",
)


def measure(
    num_items: int = 64, num_images: int = 768, rounds: int = 5, encoder: str = "resnet18"
) -> str:
    """The tables; how long the network took to compile is printed."""
    tables = (
        _views(2 * num_images, rounds),
        _losses(num_items, 3 * rounds),
        _epoch(num_images, rounds, encoder),
    )
    return "\n\n".join(tables)


def _views(num_images: int, rounds: int) -> str:
    keep_freed_memory()  # as a training does
    decoded = drawn_photographs(num_images, STORED)
    images, spec = torch.from_numpy(decoded), ViewsSpec(size=64)
    drawn = draw_parameters(2 * BATCH, STORED, spec, torch.Generator().manual_seed(0))
    with fused():
        found = make_views(images[:BATCH], drawn, spec)
    torch.testing.assert_close(found, make_views(images[:BATCH], drawn, spec), rtol=1e-4, atol=1e-4)

    def compiled() -> None:
        with fused():
            make_all(images, spec, BATCH)

    ways: dict[str, Callable[[], object]] = {
        "mtcon-ray, compiled": compiled,
        "mtcon-ray": partial(make_all, images, spec, BATCH),
        **peers(decoded, spec),
    }
    times = interleaved(ways, rounds)
    best = times["mtcon-ray, compiled"]
    rows = [(n, f"{2 * num_images / t.median:,.0f}", str(ratio(t, best))) for n, t in times.items()]
    return markdown(VIEWS, rows)


def _losses(num_items: int, rounds: int) -> str:
    z_by_task, labels = drawn(num_items)
    leaves = list(z_by_task.values())
    ours, peer = ours_and_supcontrast(z_by_task, labels)
    losses: dict[str, Callable[[], Tensor]] = {
        "mtcon, compiled": torch.compile(ours, fullgraph=True, dynamic=False),
        "mtcon": ours,
        "SupContrast": peer,
        "SupContrast, compiled": torch.compile(peer, fullgraph=True, dynamic=False),
    }
    for loss in losses.values():
        check_equal(ours, loss, leaves)
    times = interleaved({n: trained(loss, leaves, REPEATS) for n, loss in losses.items()}, rounds)
    best = times["mtcon, compiled"]
    rows = [
        (f"{num_items} images: {n}", f"{1e3 * t.median / REPEATS:.2f}", str(ratio(t, best)))
        for n, t in times.items()
    ]
    return markdown(LOSSES, rows)


def _epoch(num_images: int, rounds: int, encoder: str) -> str:
    with TemporaryDirectory() as folder:
        specs = {
            compile: spec_of(num_images, encoder, "bfloat16", compile)
            for compile in ("kernels", "none")
        }
        dataset = opened(specs["none"], Path(folder))
        runs = {c: run_of(spec, dataset, Path(folder) / c) for c, spec in specs.items()}
        single = run_of(spec_of(num_images, encoder, "float32"), dataset, Path(folder) / "float32")
        num_views = 2 * 64 * (len(dataset.table.rows("train")) // 64)
        begin = perf_counter()
        network_alone(runs["kernels"], 128)
        print(f"compiling the network took {perf_counter() - begin:.0f} s", flush=True)
        for run in runs.values():
            check_close_step(run, single)
        ways: dict[str, Callable[[], object]] = {
            "mtcon-ray, compiled": partial(next, iter(runs["kernels"])),
            "mtcon-ray": partial(next, iter(runs["none"])),
            "as SupContrast, float32": partial(next, supcontrast(single, dataset)),
            "limit: the compiled network alone": partial(network_alone, runs["kernels"], num_views),
        }
        times = interleaved(ways, rounds)
    best = times["mtcon-ray, compiled"]
    rows = [(n, f"{num_views / t.median:,.0f}", str(ratio(t, best))) for n, t in times.items()]
    return markdown(EPOCH, rows)
