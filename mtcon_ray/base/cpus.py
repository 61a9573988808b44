"""Number of CPUs available to this process. A container may limit their time."""

import os
from contextlib import suppress
from math import inf
from pathlib import Path

# The groups of this process, and the file systems with the limits of groups.
MEMBERSHIP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """Returns the number of CPUs of this process's affinity and quota, at least 1."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cpus = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, int(min(cpus, _quota())))


def _quota() -> float:
    """Returns the least quota of the process's control groups, in CPUs, or infinity without any."""
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # no Linux, or no /proc
        return inf
    return min((_limit(group) for line in lines for group in _groups(line)), default=inf)


def _groups(line: str) -> list[Path]:
    """Returns the folders of a group with a CPU limit and of all groups around it.

    In a container the line may have a path of the host, which does not exist here. The container's
    own group is then at the top.
    """
    _, controllers, path = line.split(":", 2)
    names = ["cpu", controllers] if "cpu" in controllers.split(",") else []
    found = []
    for top in (GROUPS / name for name in names or ([] if controllers else ["", "unified"])):
        group = top / os.path.normpath(path).lstrip("/")
        found += [each for each in (group, *group.parents) if top in (each, *each.parents)]
    return found


def _limit(group: Path) -> float:
    """Returns the quota of a group, in version 2 or 1 of the interface."""
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        with suppress(OSError, ValueError, ArithmeticError):  # missing, or no two numbers
            quota, period = " ".join((group / name).read_text() for name in names).split()
            if quota not in ("max", "-1"):
                return int(quota) / int(period)
    return inf
