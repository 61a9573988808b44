"""The number of usable CPUs under quotas of control groups, in a pretended file system."""

import os
from pathlib import Path

import pytest

from mtcon_ray.base import cpus
from mtcon_ray.base.cpus import usable_cpus

V1, V2 = "3:cpu,cpuacct:/docker/a", "0::/outer/inner"


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        (V2, {"cpu.max": "max 100000"}, 8),
        (V2, {"outer/cpu.max": "250000 100000", "outer/inner/cpu.max": "max 100000"}, 2),
        (V2, {"outer/cpu.max": "600000 100000", "outer/inner/cpu.max": "300000 100000"}, 3),
        (V2, {"other/cpu.max": "100000 100000"}, 8),
        # The namespace of a container: its own group is at the top.
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/../a", {"cpu.max": "400000 100000"}, 4),
        (V2, {"unified/outer/cpu.max": "400000 100000"}, 4),
        (V1, {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "50000"}, 2),
        (V1, {"cpu/docker/a/cpu.cfs_quota_us": "150000",
              "cpu/docker/a/cpu.cfs_period_us": "50000"}, 3),
        (V1, {"cpu,cpuacct/docker/cpu.cfs_quota_us": "100000",
              "cpu,cpuacct/docker/cpu.cfs_period_us": "50000"}, 2),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("3:memory:/docker/a", {"cpu.max": "100000 100000"}, 8),
        (V2, {"cpu.max": "damaged"}, 8),
        (V2, {"cpu.max": "two words"}, 8),
        ("0::/\udcff", {"\udcff/cpu.max": "200000 100000"}, 2),
        (None, {}, 8),
    ],
)  # fmt: skip
def test_a_quota_counts(
    membership: str | None,
    files: dict[str, str],
    expected: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(cpus, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cpus, "MEMBERSHIP", tmp_path / "cgroup")
    if membership is not None:
        (tmp_path / "cgroup").write_bytes(os.fsencode(f"9:pids:/x\n{membership}\n"))
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    assert usable_cpus() == expected


def test_the_affinity_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3})
    assert usable_cpus() == 1
