"""Where, when and with what a number was measured."""

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from mtcon_ray.tracking.provenance import provenance

PACKAGES = ("torch", "ray", "optuna", "mlflow")


def describe_machine() -> str:
    """Date, command, processor and versions as Markdown; the load tells whether it was quiet."""
    source = provenance(Path(__file__).parent)
    commit = source.get("mtcon.git.commit", "unknown")[:7]
    dirty = " with changes" if source.get("mtcon.git.dirty") == "true" else ""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    lines = (
        f"{datetime.now(UTC):%Y-%m-%d}, `python -m benchmarks {' '.join(sys.argv[1:])}`".rstrip(),
        f"commit {commit}{dirty}",
        f"{processor()}, {usable_cores()} usable cores, load {os.getloadavg()[0]:.1f} before",
        f"Python {platform.python_version()}, {versions}",
    )
    return "\n".join(f"- {line}" for line in lines)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def processor() -> str:
    """The processor's name, or only its kind where the system does not tell."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
