"""Load of a training's process and GPU, sampled once an epoch.

MLflow shows metrics with names that begin with "system/" in their own tab. Its own sampler, a
thread, asks the server every ten seconds. Trials never wait for the server.
"""

import os
import time
from contextlib import suppress
from pathlib import Path

import torch

from mtcon_ray.base import metrics

MEGABYTE = 1e6  # as MLflow's


class SystemMetrics:
    """Sampler of this process and of `device`, on which its network must be already."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._restart()

    def sample(self) -> dict[str, float]:
        """Returns the metrics of the time since the last sample, by name.

        CPU use is 100 per busy core. A GPU's memory in use counts all processes. Unmeasurable
        values are omitted.
        """
        seconds = time.perf_counter() - self._seconds
        busy = 100 * (time.process_time() - self._cpu_seconds) / max(seconds, 1e-9)
        values = {metrics.PROCESS_CPU: busy}
        with suppress(FileNotFoundError):  # not on macOS
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            values[metrics.PROCESS_MEMORY] = pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE
        if self._device.type == "cuda":
            num_free, num_total = torch.cuda.mem_get_info(self._device)
            peak = torch.cuda.max_memory_allocated(self._device)
            values[metrics.PROCESS_GPU_MEMORY] = peak / MEGABYTE
            values[metrics.GPU_MEMORY] = (num_total - num_free) / MEGABYTE
            values[metrics.GPU_MEMORY_SHARE] = 100 * (1 - num_free / num_total)
        self._restart()
        return values

    def _restart(self) -> None:
        self._seconds, self._cpu_seconds = time.perf_counter(), time.process_time()
        if self._device.type == "cuda":
            # A process trains several trials in sequence, and each trial has its own peak.
            torch.cuda.reset_peak_memory_stats(self._device)
