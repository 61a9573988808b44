"""Samples of the memory of this process, and of a pretended GPU."""

from unittest.mock import Mock, call

import pytest
import torch

from mtcon_ray.tracking.system_metrics import memory


def test_memory_of_this_process_and_peaks_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    (only,) = memory(torch.device("cpu")).items()
    assert only[0] == "system/process_memory_megabytes"
    assert 50 < only[1] < 100_000
    gpu, cuda = torch.device("cuda", 0), Mock()
    cuda.max_memory_allocated.return_value = 3_000_000_000
    monkeypatch.setattr(torch, "cuda", cuda)
    assert memory(gpu)["system/process_gpu_memory_megabytes"] == 3000
    assert cuda.method_calls == [call.max_memory_allocated(gpu), call.reset_peak_memory_stats(gpu)]
