"""Profiles of two views and of a small batch's losses on the CPU.

The first table has the parts of `make_views` in microseconds per batch of 64 images. The second
has the operations of three tasks' losses of 64 images, forward and backward, by torch's profiler.
The profiler slows every operation, so only the shares of the second table are meaningful.
"""

from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.losses import drawn, matrix_products, ours_and_supcontrast, trained
from benchmarks.table import markdown
from benchmarks.views import BATCH, STORED, drawn_photographs
from mtcon_ray.data.augmentations import (
    Turns,
    apply_,
    blend_amounts,
    grayscale,
    hue_shifts,
    jitter_,
    jitter_turns,
    normalise_,
)
from mtcon_ray.data.resizing import crop_by_taps
from mtcon_ray.data.views import ViewParameters, draw_parameters
from mtcon_ray.spec.views import ViewsSpec
from mtcon_ray.training.device import keep_freed_memory

VIEWS = ("two views of 64 images, 64 px", "microseconds", "share")
LOSSES = ("3 tasks, 64 images, forward and backward", "calls", "microseconds", "share")
MOST_OPERATIONS = 12


def measure(repeats: int = 200) -> str:
    """Returns both tables."""
    return f"{_views(repeats)}\n\n{_losses(repeats)}"


def _views(repeats: int) -> str:
    keep_freed_memory()  # as in training: otherwise glibc returns memory to the system each batch
    images, spec = torch.from_numpy(drawn_photographs(BATCH, STORED)), ViewsSpec(size=64)
    seconds: dict[str, list[float]] = {}

    def timed(part: str, do: Callable[[], Tensor]) -> Tensor:
        begin = perf_counter()
        done = do()
        seconds.setdefault(part, []).append(perf_counter() - begin)
        return done

    for seed in range(repeats):
        in_parts(images, spec, seed, timed)
    found = [(part, 1e6 * median(each)) for part, each in seconds.items()]
    whole = sum(each for _, each in found)
    rows = [(part, f"{each:.0f}", f"{each / whole:.0%}") for part, each in found]
    return markdown(VIEWS, [*rows, ("all", f"{whole:.0f}", "100%")])


def in_parts(
    images: Tensor,
    spec: ViewsSpec,
    seed: int,
    timed: Callable[[str, Callable[[], Tensor]], Tensor],
) -> Tensor:
    """Computes the views of a batch as `make_views` does, with each part timed by `timed`."""
    drawn: list[tuple[ViewParameters, Turns]] = []

    def draw() -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        parameters = draw_parameters(2 * len(images), images.shape[1], spec, generator)
        turns = jitter_turns(parameters.order_R4, parameters.factor_R4)
        drawn.append((parameters.rows(turns.order_R), turns))
        return crop_by_taps(images, parameters.box_R4, parameters.flip_R, spec.size, turns.order_R)

    x_RCWH = timed("draws, and crops, mirrored and resized", draw)
    ((rows, turns),) = drawn

    def jitter() -> Tensor:
        amount_3R4 = blend_amounts(rows.order_R4, rows.factor_R4)
        jitter_(x_RCWH, amount_3R4, hue_shifts(rows.factor_R4, turns), turns)
        return x_RCWH

    def gray() -> Tensor:
        apply_(x_RCWH, rows.grayscale_R, grayscale)
        return x_RCWH

    def normal() -> Tensor:
        moments_2C = torch.tensor([spec.mean, spec.std])
        return normalise_(x_RCWH.mT, moments_2C, turns.order_R.argsort())

    timed("colour jitter", jitter)
    timed("grayscale", gray)
    return timed("normalised, in order, channels last", normal)


def _losses(repeats: int) -> str:
    z_by_task, labels = drawn(64)
    leaves = list(z_by_task.values())
    ours, _ = ours_and_supcontrast(z_by_task, labels)
    step = trained(ours, leaves, 1)
    step()
    whole = _median_seconds(step, repeats)
    products = _median_seconds(partial(_products, leaves), repeats)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(repeats):
            step()
    operations = sorted(found.key_averages(), key=lambda o: -o.self_cpu_time_total)
    total = sum(o.self_cpu_time_total for o in operations)
    most, rest = operations[:MOST_OPERATIONS], operations[MOST_OPERATIONS:]
    rows = [_row(o.key, [o], repeats, total) for o in most]
    rows.append(_row(f"{len(rest)} others", rest, repeats, total))
    rows += [
        ("without the profiler", "", f"{1e6 * whole:.0f}", ""),
        ("of these, the matrix products alone", "", f"{1e6 * products:.0f}", ""),
    ]
    return markdown(LOSSES, rows)


def _products(leaves: list[Tensor]) -> None:
    for z_BVD in leaves:
        matrix_products(z_BVD.detach().flatten(0, 1))


def _row(
    name: str,
    operations: Iterable[torch.autograd.profiler_util.FunctionEventAvg],
    n: int,
    of: float,
) -> tuple[str, ...]:
    each = list(operations)
    spent = sum(o.self_cpu_time_total for o in each)
    calls = sum(o.count for o in each) / n
    return name, f"{calls:.0f}", f"{spent / n:.0f}", f"{spent / of:.0%}"


def _median_seconds(do: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = perf_counter()
        do()
        seconds.append(perf_counter() - begin)
    return median(seconds)
