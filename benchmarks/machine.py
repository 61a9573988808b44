"""Description of the machine, date and versions of a measurement."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from mtcon_ray.tracking.provenance import provenance

PACKAGES = ("torch", "torchvision", "numpy", "pillow", "lightly", "pytorch-metric-learning",
            "ray", "optuna", "mlflow")  # fmt: skip
NO_GPU = "none at hand: not run"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "fashion_shoes"
# A folder with photographs: labels.csv and images.tar.gz.
PHOTOS = Path(os.environ.get("MTCON_RAY_PHOTOS", SHARED))


def describe_machine() -> str:
    """Returns date, command, commit, processor, load, GPU and versions as a Markdown list.

    A high load means other running processes, which may have disturbed the timing.
    """
    source = provenance(Path(__file__).parent)
    commit = source.get("mtcon.git.commit", "unknown")[:7]
    versions = ", ".join(filter(None, map(_with_version, PACKAGES)))
    lines = (
        f"{datetime.now(UTC):%Y-%m-%d}, `python -m benchmarks {' '.join(sys.argv[1:])}`".rstrip(),
        f"commit {commit}",
        f"{processor()}, {usable_cores()} usable cores, load {os.getloadavg()[0]:.1f} before",
        f"GPU: {gpu()}",
        f"Python {platform.python_version()}, {versions}",
    )
    return "\n".join(f"- {line}" for line in lines)


def gpu() -> str:
    """Returns the first GPU's name and the CUDA version, or a note about a missing GPU."""
    if not torch.cuda.is_available():
        return NO_GPU
    return f"{torch.cuda.get_device_name(0)}, CUDA {torch.version.cuda}"


def finish(device: torch.device) -> None:
    """Synchronises with a GPU: the measured time then includes all launched operations."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def usable_cores() -> int:
    """Returns the number of cores on which this process may run (its affinity mask)."""
    return len(os.sched_getaffinity(0))


def processor() -> str:
    """Returns the processor's name, or its architecture if the system has no /proc/cpuinfo."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _with_version(package: str) -> str:
    """Returns "package version", or "" if the package is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""
