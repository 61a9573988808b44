"""Time for which trials wait between their epochs, because a trial waits for the driver's answer.

The trials only sleep: an epoch takes half a second, and every fourth epoch is probed.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from unittest.mock import patch

import ray

from benchmarks.idle_trial import sweep_spec
from benchmarks.paced_trial import WAITING, PacedTrial
from benchmarks.table import markdown
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.run import run_sweep

# Numbers of trials at a time, and the largest share of its time for which a trial may wait.
AT_A_TIME = (2, 8, 32)
MOST_WAITING = 0.05


class Waiting(Callbacks):
    """Callback that stores the last share of the time for which each trial has waited."""

    def __init__(self) -> None:
        self.shares: dict[str, float] = {}

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        self.shares[trial] = metrics.get(WAITING, 0.0)


def measure_waiting(at_a_time: int) -> list[float]:
    """Returns the share of its time for which each trial of a sweep has waited.

    Ray gets a CPU for each trial, because the trials only sleep.
    """
    changes = {
        "train.epochs": 10_000,  # the trials end by themselves
        "search.sampler": "random",
        "search.num_trials": at_a_time,
        "search.max_concurrent": at_a_time,
    }
    waiting = Waiting()
    ray.init(
        num_cpus=at_a_time,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    try:
        with TemporaryDirectory() as folder, patch.object(on_ray, "ReusedTrainable", PacedTrial):
            spec = with_values(sweep_spec(at_a_time), changes)
            run_sweep(spec, root=Path(folder), callbacks=waiting)
    finally:
        ray.shutdown()
    assert len(waiting.shares) == at_a_time
    return sorted(waiting.shares.values())


def waiting_table(sizes: Sequence[int] = AT_A_TIME) -> str:
    """Returns the table of the shares. Takes some minutes."""
    rows = []
    for at_a_time in sizes:
        shares = measure_waiting(at_a_time)
        rows.append((str(at_a_time), f"{fmean(shares):.1%} ({shares[0]:.1%} to {shares[-1]:.1%})"))
    header = (
        "trials at a time, epochs of 0.5 s",
        f"share of the time between epochs (limit {MOST_WAITING:.0%})",
    )
    return markdown(header, rows)
