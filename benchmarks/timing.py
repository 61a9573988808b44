"""Timing of alternatives in turns: noise of the machine then affects all of them alike."""

import ctypes
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import NamedTuple


class Times(NamedTuple):
    """Seconds of an alternative, with a number per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Returns the median over the rounds, in seconds."""
        return statistics.median(self.seconds)


class Ratio(NamedTuple):
    """Another alternative's time divided by ours: median, least and greatest over the rounds."""

    median: float
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.least:.2f} to {self.most:.2f})"


def interleaved(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, Times]:
    """Times each alternative once per round, after an uncounted warm-up round."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for counted in [False] + [True] * rounds:
        for name, way in ways.items():
            begin = perf_counter()
            way()
            if counted:
                seconds[name].append(perf_counter() - begin)
    return {name: Times(tuple(each)) for name, each in seconds.items()}


def ratio(other: Times, ours: Times) -> Ratio:
    """Returns statistics of `other` / `ours` per round: a slow phase then affects both sides."""
    ratios = [a / b for a, b in zip(other.seconds, ours.seconds, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def peak_bytes(way: Callable[[], object]) -> int:
    """Returns the peak rise of the process's resident memory during `way` (Linux, glibc)."""
    # glibc keeps freed memory. Its reuse would hide allocations of `way`.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM, the peak, to the current VmRSS
    before = _status("VmRSS")
    way()
    return max(0, _status("VmHWM") - before)


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes (Linux)."""
    return _status("VmRSS")


def most_resident_bytes() -> int:
    """Returns the peak of this process's resident memory in bytes (Linux)."""
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
