"""Fair share of a cluster between several sweeps that run on it."""

import time

from ray.job_config import JobConfig

from mtcon_ray.cluster.ray_private import PathlessJob, connected_drivers

# Ray keeps this metadata in its table of jobs, and marks the job dead when its driver ends.
MARK = "mtcon.sweep"
LOOK_SECONDS = 5.0


def marked_job() -> JobConfig:
    """Returns the job configuration by which other sweeps recognise a sweep's driver."""
    return PathlessJob(metadata={MARK: "1"})


class FairShare:
    """The number of trials that a sweep may run at present; a callable.

    If `fitting` trials fit the cluster (None: unknown) and n sweeps run, each sweep may run
    `fitting / n` trials, at least one and never more than `most`. No running trial is stopped, so
    a later sweep gets its share as trials of the others end. Other jobs of the cluster do not
    count, and the trials of all sweeps are assumed to have the size of this sweep's.
    """

    def __init__(self, fitting: int | None, most: int) -> None:
        self._fitting = fitting
        self._most = most
        self._share = most
        self._next_look = 0.0

    def __call__(self) -> int:
        if self._fitting is not None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            # The drivers of all sweeps on this cluster, this one included.
            sweeps = sum(MARK in metadata for metadata in connected_drivers())
            self._share = share_of(self._fitting, sweeps, self._most)
        return self._share


def share_of(fitting: int, sweeps: int, most: int) -> int:
    """Returns `fitting / sweeps` rounded down, at least 1 and at most `most`."""
    return min(most, max(1, fitting // max(1, sweeps)))
