"""Number of CPUs available to this process. A container may limit their time."""

import os
from contextlib import suppress
from math import inf
from pathlib import Path

# Files with the quota and the period of a container, by version of the kernel's control groups.
LIMITS = (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"))
GROUPS = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """Returns the number of CPUs of this process's affinity and quota, at least 1."""
    return max(1, int(min(len(os.sched_getaffinity(0)), _quota())))


def _quota() -> float:
    """Returns the quota of this process's container, in CPUs, or infinity without any."""
    for names in LIMITS:
        with suppress(OSError, ValueError, ArithmeticError):  # missing, or no two numbers
            quota, period = " ".join((GROUPS / name).read_text() for name in names).split()
            if quota not in ("max", "-1"):
                return int(quota) / int(period)
    return inf
