"""Trials per hour on one GPU (ResNet-18, batch 64, 64 px), one at a time and several concurrently.

Each measurement is a whole sweep with fractional GPUs (`resources.gpus: 1 / n`), as a user would
set them; the host's cores are divided in the same way. The time runs from the first suggestion to
the end of the last trial, and so includes the start of the processes.
"""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from benchmarks.idle_trial import Listener
from benchmarks.machine import NO_GPU, usable_cores
from benchmarks.table import markdown
from mtcon_ray.spec import RunSpec, parse_spec
from mtcon_ray.sweep import driver

HEADER = ("ResNet-18, batch 64, 64 px, one GPU", "trials per hour", "times one at a time")


def sweep_spec(at_once: int, num_trials: int, num_images: int, encoder: str, gpu: bool) -> RunSpec:
    """Returns a sweep of `num_trials` random temperatures, three epochs each, no early stopping."""
    return parse_spec(
        {
            "name": "trials",
            "data": {"kind": "synthetic", "num_items": num_images},
            "views": {"size": 64},
            "model": {"encoder": {"name": encoder}},
            "train": {"epochs": 3, "batch_size": 64},
            "evaluate": {"every": 3},
            "search": {
                "space": {"method.temperature": {"loguniform": [0.05, 1.0]}},
                "sampler": "random",
                "num_trials": num_trials,
                "max_concurrent": at_once,
                "scheduler": {"name": "none"},
            },
            "resources": {
                "gpus": 1 / at_once if gpu else 0,
                "cpus": max(1, usable_cores() // at_once),
            },
            "tracking": {"offline": True},
        }
    )


def trials_per_hour(spec: RunSpec) -> float:
    """Runs one sweep and returns its trials per hour; all of its trials must finish."""
    listener = Listener()
    with TemporaryDirectory() as folder:
        results = driver.run_sweep(spec, root=Path(folder), callbacks=listener)
    assert all(trial.status == "FINISHED" for trial in results.trials)
    return 3600 * len(results.trials) / listener.clock.total


def measure(
    at_once: Sequence[int] = (1, 2, 4, 8),
    num_trials: int = 16,
    num_images: int = 50_025,
    encoder: str = "resnet18",
    *,
    needs_gpu: bool = True,
) -> str:
    """Returns the table; if a GPU is needed and missing, one that says that nothing was run."""
    if needs_gpu and not torch.cuda.is_available():
        return markdown(HEADER, [(f"trials on one GPU: {NO_GPU}", "", "")])
    rates = {
        n: trials_per_hour(sweep_spec(n, num_trials, num_images, encoder, needs_gpu))
        for n in at_once
    }
    alone = rates[at_once[0]]
    rows = [(f"{n} at a time", f"{rate:.1f}", f"{rate / alone:.2f}") for n, rate in rates.items()]
    return markdown(HEADER, rows)
