"""Rows of `python -m benchmarks gpu`, on a CPU in the place of the GPU."""

import re
from pathlib import Path

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.gpu import ranks
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.rows import measure

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


def test_rows_on_a_cpu(on_cpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("methods", "views", "optimizers", "chunks", "streaming", "resume", "checkpoints")
    passed = measure(names, on_cpu, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    assert re.search(r"methods: mtcon *\| loss 0e\+00, gradients 0e\+00, no sync", output)
    assert re.search(r"resume: CPU, GPU, CPU *\| parameters 0e\+00 ", output)


def test_two_ranks_on_the_cpu(on_cpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = {n: ranks.trained([on_cpu.device] * n, on_cpu.folder) for n in (1, 2)}
    monkeypatch.setattr(ranks, "trained", lambda devices, folder: trained[len(devices)])
    monkeypatch.setattr("sys.argv", ["benchmarks", "gpu", "ranks", "--cpu"])
    main()
    (wrong := on_cpu.folder / "wrong").write_text(ranks.STORED.read_text().replace(": ", ": 2", 1))
    monkeypatch.setattr(ranks, "STORED", wrong)
    with pytest.raises(AssertionError, match="loss of epoch 1 and the stored value differ by"):
        dict(ranks.ranks(on_cpu))["1 rank"]()
