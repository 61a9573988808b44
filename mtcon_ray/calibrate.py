"""How fast this machine trains and evaluates a spec: a few steps and one evaluation, measured."""

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation import protocol
from mtcon_ray.local import pick_device
from mtcon_ray.places import store_folder
from mtcon_ray.plan import Rates, prepare_root
from mtcon_ray.run import Run
from mtcon_ray.spec import RunSpec, with_values

NUM_STEPS = 20
# The first steps allocate memory and choose algorithms.
NUM_WARMUP_STEPS = 5


def measure_rates(spec: RunSpec, root: Path) -> Rates:
    """Returns the rates of one worker here; of several workers, with its share of the batch.

    Images per second are the median over a few steps; then the network is evaluated once, as at
    the end of a trial. Decodes the images into the store if they are not there. Raises MtconError
    as training does.
    """
    prepare_root(root)
    epochs = spec.train.epochs
    base = with_values(spec, {"search": {}, "evaluate.every": epochs, **_one_worker(spec)})
    dataset = open_dataset(
        base.data, seed=base.data.seed, view_size=base.views.size, store=store_folder(root)
    )
    times: list[float] = []
    device, threads = pick_device(base), base.resources.cpus
    enough = stopwatch(device, times)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(base, dataset, Path(folder), device=device, threads=threads, should_stop=enough)
        for _ in run:
            pass

    def seconds(measure: Callable[..., dict[str, float]]) -> float:
        begun = time.perf_counter()
        measure(
            run.network, dataset, base.evaluate, base.views, device=device, seed=base.seed,
            autocast_dtype=run.learner.autocast_dtype,
        )  # fmt: skip
        return time.perf_counter() - begun

    steps = [after - before for before, after in pairwise(times)]
    if len(steps) <= NUM_WARMUP_STEPS:
        raise DataError(f"--calibrate needs {NUM_WARMUP_STEPS + 1} steps, got {len(steps)} in all")
    num_images = base.train.batch_size * base.method.images_per_example
    # First the evaluation that a trial has once: the first one of a process is slower.
    test_seconds = seconds(protocol.report)
    return Rates(
        images_per_second=num_images / statistics.median(steps[NUM_WARMUP_STEPS:]),
        probe_seconds=seconds(protocol.validate),
        test_seconds=test_seconds,
    )


def _one_worker(spec: RunSpec) -> dict[str, Any]:
    """Returns the fields of a spec for one process that trains what each of its workers does."""
    _, workers = spec.resources.worker_range
    return {
        "resources.workers": 1,
        # A worker computes on the first of its GPUs.
        "resources.gpus": min(1, spec.resources.gpus),
        # A method compares items of a batch, which must be two at least.
        "train.batch_size": max(2, spec.train.batch_size // workers),
    }


def stopwatch(device: torch.device, times: list[float]) -> Callable[[], bool]:
    """Returns a `should_stop` that appends the time of each step, and ends after enough of them."""

    def enough() -> bool:
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # or the steps would be timed as they are launched
        times.append(time.perf_counter())
        return len(times) > NUM_WARMUP_STEPS + NUM_STEPS

    return enough
