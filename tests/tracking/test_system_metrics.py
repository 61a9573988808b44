"""Samples of the load of this process, and of a pretended GPU."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from mtcon_ray.tracking.system_metrics import SystemMetrics

CPU = torch.device("cpu")


def test_processor_time_and_memory_are_those_since_the_last_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock: Iterator[float] = iter((0.0, 10.0, 10.0, 14.0, 14.0))
    busy: Iterator[float] = iter((0.0, 15.0, 15.0, 16.0, 16.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(time, "process_time", lambda: next(busy))
    system = SystemMetrics(CPU)
    first, second = system.sample(), system.sample()
    assert first["system/process_cpu_percentage"] == 150
    assert second["system/process_cpu_percentage"] == 25
    assert first.keys() == {"system/process_cpu_percentage", "system/process_memory_megabytes"}
    assert 50 < first["system/process_memory_megabytes"] < 100_000


def test_of_a_gpu_the_peak_of_each_epoch_and_what_all_processes_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = torch.device("cuda", 0)
    calls: list[Any] = []

    def peak(device: torch.device) -> int:
        calls.append("peak")
        return 3_000_000_000

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (60 * 10**9, 80 * 10**9))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", peak)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", calls.append)
    values = SystemMetrics(gpu).sample()
    assert values["system/process_gpu_memory_megabytes"] == 3000
    assert values["system/gpu_0_memory_usage_megabytes"] == 20_000
    assert values["system/gpu_0_memory_usage_percentage"] == 25
    assert calls == [gpu, "peak", gpu]
