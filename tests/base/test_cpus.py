"""The number of usable CPUs under a container's quota, in a pretended file system."""

import os
from pathlib import Path

import pytest

from mtcon_ray.base import cpus
from mtcon_ray.base.cpus import usable_cpus

QUOTA, PERIOD = "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"


CPU_LIMITS = [
    ({}, 8), ({"cpu.max": "max 100000"}, 8), ({"cpu.max": "250000 100000"}, 2),
    ({"cpu.max": "50000 100000"}, 1), ({QUOTA: "150000", PERIOD: "50000"}, 3),
    ({QUOTA: "-1", PERIOD: "100000"}, 8), ({"cpu.max": "two words"}, 8),
]  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), CPU_LIMITS)
def test_a_quota_counts(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cpus, "GROUPS", tmp_path)
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(f"{text}\n")
    assert usable_cpus() == expected
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert usable_cpus() == 1
