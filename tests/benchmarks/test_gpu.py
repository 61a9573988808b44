"""Rows of `python -m benchmarks gpu`, on a CPU in the place of the GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu import values
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.rows import measure
from mtcon_ray.data.views import make_views

pytestmark = pytest.mark.slow


@pytest.fixture
def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The rows compare the CPU with itself; torch cannot tell synchronisations of a CPU."""
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return Bench(
        torch.device("cpu"), tmp_path, tmp_path / "kept", encoder="small", sizes=(16,),
        batches=(8,), methods=("mtcon",), num_images=60, compile=("none",), seconds=0.0,
        elements=64, processes=(1, 2), warm_up=1,
    )  # fmt: skip


def results(output: str) -> dict[str, str]:
    """Returns each line's result by its name."""
    lines = output.splitlines()[2:]
    return {cells[1].strip(): cells[2].strip() for cells in (line.split("|") for line in lines)}


def test_rows_on_a_cpu(on_cpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("methods", "views", "optimizers", "chunks", "streaming", "resume", "checkpoints")
    passed = measure(names, on_cpu, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    found = results(output)
    assert found["methods: mtcon"] == "loss 0e+00, gradients 0e+00, no synchronisation"
    assert found["resume: CPU, GPU, CPU"] == "parameters 0e+00"


def test_a_line_that_fails_is_shown_and_the_next_one_measured(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first call, in the place of the GPU's, makes other views."""
    made: list[bool] = []

    def wrong_for_the_gpu(*given: Any) -> torch.Tensor:
        made.append(True)
        return make_views(*given) + (1e-3 if len(made) == 1 else 0.0)

    monkeypatch.setattr(values, "make_views", wrong_for_the_gpu)
    assert not measure(["views"], on_cpu, has_gpu=True)
    first, second, *_ = results(capsys.readouterr().out).values()
    assert first.startswith("failed: AssertionError: values differ by")
    assert second == "values 0e+00"
