"""Small settings of the GPU's benchmark."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.bench import Bench
from tests.pretended_gpu import GPU


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(
        GPU,
        tmp_path,
        tmp_path / "kept",
        encoder="small",
        sizes=(16,),
        batches=(8,),
        methods=("mtcon",),
        num_images=60,
        compile=("none",),
        seconds=0.0,
        elements=64,
        processes=(1, 2),
        warm_up=1,
    )


@pytest.fixture
def on_cpu(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The rows compare the CPU with itself; torch cannot tell synchronisations of a CPU."""
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return replace(bench, device=torch.device("cpu"))
