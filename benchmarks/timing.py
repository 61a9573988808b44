"""Ways of doing the same, timed in turns so that a noisy machine is unfair to none."""

import ctypes
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple


class Times(NamedTuple):
    """Seconds of one way, one per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Over the rounds."""
        return statistics.median(self.seconds)


class Ratio(NamedTuple):
    """How many times as long as ours another way takes: of the rounds' ratios."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Each way once in every round, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for counted in [False] + [True] * rounds:
        for name, way in ways.items():
            begin = perf_counter()
            way()
            if counted:
                seconds[name].append(perf_counter() - begin)
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def ratio(other: Times, ours: Times) -> Ratio:
    """Round by round, so that a slow second of the machine counts on both sides."""
    ratios = [a / b for a, b in zip(other.seconds, ours.seconds, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def peak_bytes(way: Callable[[], object]) -> int:
    """By how much the process's resident memory rises at most while it runs (Linux, glibc)."""
    ctypes.CDLL(None).malloc_trim(0)  # what was freed before counts as not there
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew from what is resident
    before = _status("VmRSS")
    way()
    return max(0, _status("VmHWM") - before)


def resident_bytes() -> int:
    """What this process holds of the machine's memory now (Linux)."""
    return _status("VmRSS")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
