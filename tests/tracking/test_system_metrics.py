"""Samples of the load of this process, and of a pretended GPU."""

import time
from unittest.mock import Mock, call

import pytest
import torch

from mtcon_ray.tracking.system_metrics import SystemMetrics

CPU = torch.device("cpu")


def test_processor_time_is_that_since_the_last_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, busy = (0.0, 10.0, 10.0, 14.0, 14.0), (0.0, 15.0, 15.0, 16.0, 16.0)
    monkeypatch.setattr(time, "perf_counter", Mock(side_effect=clock))
    monkeypatch.setattr(time, "process_time", Mock(side_effect=busy))
    system = SystemMetrics(CPU)
    first, second = system.sample(), system.sample()
    assert first["system/process_cpu_percentage"] == 150
    assert second["system/process_cpu_percentage"] == 25
    assert first.keys() == {"system/process_cpu_percentage", "system/process_memory_megabytes"}
    assert 50 < first["system/process_memory_megabytes"] < 100_000


def test_a_gpu_s_peak_of_each_epoch_and_all_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    cuda = Mock()
    cuda.mem_get_info.return_value = (60 * 10**9, 80 * 10**9)
    cuda.max_memory_allocated.return_value = 3_000_000_000
    monkeypatch.setattr(torch, "cuda", cuda)
    values = SystemMetrics(gpu).sample()
    assert values["system/process_gpu_memory_megabytes"] == 3000
    assert values["system/gpu_0_memory_usage_megabytes"] == 20_000
    assert values["system/gpu_0_memory_usage_percentage"] == 25
    peaks = [each for each in cuda.method_calls if each != call.mem_get_info(gpu)]
    reset = call.reset_peak_memory_stats(gpu)
    assert peaks == [reset, call.max_memory_allocated(gpu), reset]
