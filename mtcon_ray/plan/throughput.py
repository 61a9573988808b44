"""Throughput of training and evaluation on this machine, measured in a few steps."""

import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch

from mtcon_ray.base.paths import cache_folder, prepare_root
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import DataError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.plan.local import choose_device
from mtcon_ray.plan.planning import Rates
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training.trainer import Trainer

NUM_STEPS = 20
# Left out of the measurement: in the first steps memory is allocated and algorithms are chosen.
NUM_WARMUP_STEPS = 5


def measure_rates(spec: RunSpec, root: Path) -> Rates:
    """Returns the rates of a worker on this machine, with a worker's share of the batch.

    Images per second are the median over NUM_STEPS steps. The network is then evaluated once as at
    the end of a trial, and validated once. Decodes the images into the image store if needed.

    Raises MtconError as training does, DataError if there are too few steps.
    """
    prepare_root(root)
    _, workers = spec.resources.worker_range
    one_worker = {
        "evaluate.every": spec.train.epochs,
        "resources.workers": 1,
        # A worker computes on the first of its GPUs only.
        "resources.gpus": min(1, spec.resources.gpus),
        # Contrastive losses need at least two items.
        "train.batch_size": max(2, spec.train.batch_size // workers),
    }
    base = with_values(spec.trial({}), one_worker)
    store = cache_folder(root)
    dataset = open_dataset(base.data, view_size=base.views.size, store=store)
    times: list[float] = []
    device = choose_device(base)
    enough = stopwatch(device, times)
    with tempfile.TemporaryDirectory() as folder:
        run = Trainer(base, dataset, Path(folder), device=device, should_stop=enough, store=store)
        list(run)

    def seconds(measure: Callable[[Evaluation], dict[str, float]]) -> float:
        begun = time.perf_counter()
        run.evaluate(measure)
        return time.perf_counter() - begun

    steps = [after - before for before, after in pairwise(times)]
    if len(steps) <= NUM_WARMUP_STEPS:
        raise DataError(f"--calibrate needs {NUM_WARMUP_STEPS + 1} steps, got {len(steps)} in all")
    num_images = base.train.batch_size * base.method.images_per_example
    # The test evaluation first: the first evaluation in a process is slower, which must not count
    # for every validation of a trial.
    test_seconds = seconds(Evaluation.report) if spec.evaluate.test else 0.0
    return Rates(
        images_per_second=num_images / statistics.median(steps[NUM_WARMUP_STEPS:]),
        probe_seconds=seconds(Evaluation.validate),
        test_seconds=test_seconds,
    )


def stopwatch(device: torch.device, times: list[float]) -> Callable[[], bool]:
    """Returns a `should_stop` that appends each step's time in seconds to `times`.

    It returns True after NUM_WARMUP_STEPS + NUM_STEPS steps.
    """

    def enough() -> bool:
        if device.type == "cuda":
            # CUDA launches are asynchronous: without this, only launching a step is measured.
            torch.cuda.synchronize(device)
        times.append(time.perf_counter())
        return len(times) > NUM_WARMUP_STEPS + NUM_STEPS

    return enough
