"""Memory of a training's process and GPU, sampled once an epoch.

MLflow shows metrics with names that begin with "system/" in their own tab. Its own sampler, a
thread, asks the server every ten seconds. Trials never wait for the server.
"""

import os
from pathlib import Path

import torch

from mtcon_ray.base import metrics

MEGABYTE = 1e6  # as MLflow's


def memory(device: torch.device) -> dict[str, float]:
    """Returns this process's memory, and its peak on a GPU since the last call, by name.

    The process must have used the GPU.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    values = {metrics.PROCESS_MEMORY: pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE}
    if device.type == "cuda":
        values[metrics.PROCESS_GPU_MEMORY] = torch.cuda.max_memory_allocated(device) / MEGABYTE
        torch.cuda.reset_peak_memory_stats(device)
    return values
