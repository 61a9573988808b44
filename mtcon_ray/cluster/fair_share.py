"""Several sweeps on one cluster: each takes its part of the trials that fit, not all of them."""

import time

from ray.job_config import JobConfig

from mtcon_ray.cluster.ray_private import connected_drivers

# Ray keeps it with the driver's entry in its table of jobs, and marks that dead with the driver.
MARK = "mtcon.sweep"
LOOK_SECONDS = 5.0


def marked_job() -> JobConfig:
    """What a sweep's driver connects with, so that other sweeps see it."""
    return JobConfig(metadata={MARK: "1"})


def running_sweeps() -> int:
    """Drivers of sweeps that are connected to this cluster now, this one included."""
    return sum(MARK in metadata for metadata in connected_drivers())


class FairShare:
    """How many trials a sweep may have running now.

    Where `fitting` trials fit the cluster (None: unknown) and n sweeps run, each may have the
    n-th part, and always one. Running trials are never stopped for it, so a sweep that comes
    later gets its part as trials of the others end. Sweeps alone are counted, and their trials
    are taken to be as large as this sweep's.
    """

    def __init__(self, fitting: int | None, most: int) -> None:
        self._fitting = fitting
        self._most = most
        self._share = most
        self._next_look = 0.0

    def __call__(self) -> int:
        if self._fitting is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._share = share_of(self._fitting, running_sweeps(), self._most)
        return self._share


def share_of(fitting: int, sweeps: int, most: int) -> int:
    """The n-th part of the trials that fit, at least one, at most what the sweep may have."""
    return min(most, max(1, fitting // max(1, sweeps)))
