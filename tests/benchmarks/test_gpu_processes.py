"""Rows of `python -m benchmarks gpu` with several processes."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import processes
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.rows import measure

pytestmark = pytest.mark.slow


def test_a_process_trains_for_as_long_as_it_is_asked_to(on_cpu: Bench) -> None:
    """Its settings are passed as text; each line is answered by a number of views per second."""
    text = processes.as_text(on_cpu)
    assert processes.from_text(text) == on_cpu
    answers = io.StringIO()
    processes.serve(on_cpu, io.StringIO("0.001\n0.001\n"), answers)
    ready, *rates = answers.getvalue().splitlines()
    assert ready == "ready"
    assert len(rates) == 2
    assert all(float(rate) > 0 for rate in rates)


def test_processes_are_asked_before_one_is_waited_for() -> None:
    calls: list[str] = []

    class Stub:
        def ask(self, seconds: float) -> None:
            calls.append(f"ask {seconds}")

        def answer(self) -> str:
            calls.append("answer")
            return "2.5"

    assert processes.rate_of([Stub(), Stub()], 1.0) == 5.0  # type: ignore[list-item]
    assert calls == ["ask 1.0", "ask 1.0", "answer", "answer"]


def test_mps_is_used_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon here is a script that writes down how it is called."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with processes.with_mps() as variables:
        assert variables is None
    called, daemon = tmp_path / "called", tmp_path / processes.MPS
    daemon.write_text(f'#!/bin/sh\nread line\necho "$* $line" >> {called}\n')
    daemon.chmod(0o700)
    with processes.with_mps() as variables:
        assert variables is not None
        assert Path(variables["CUDA_MPS_PIPE_DIRECTORY"]).is_dir()
        assert called.read_text() == "-d \n"
    assert called.read_text() == "-d \n quit\n"


@pytest.mark.soak
def test_rows_of_several_processes(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks of one training, and two trainings in processes and in threads, on the CPU."""
    monkeypatch.setenv("PATH", "")
    assert measure(["ranks", "sharing"], replace(on_cpu, seconds=0.1), has_gpu=True)
    _, _, ranks, without, with_, threads = capsys.readouterr().out.splitlines()
    assert ranks.startswith("| ranks: 2 ranks, gloo | gradients ")
    assert without.startswith("| sharing: batch 8, compile none, without MPS | 1: ")
    assert " views/s (1.00), 2: " in without
    assert "with MPS | not run: nvidia-cuda-mps-control is not there |" in with_
    assert threads.startswith("| sharing: batch 8, compile graphs, one process | 1: ")
    assert " views/s (1.00), 2: " in threads
