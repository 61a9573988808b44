"""Rows of `python -m benchmarks gpu`, on a CPU in the place of the GPU."""

import re
from functools import partial
from math import inf
from pathlib import Path
from shutil import make_archive
from time import sleep

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.gpu import limits, ranks, rows
from benchmarks.gpu.bench import Bench
from benchmarks.gpu.rows import measure
from tests.tables import write_table

pytestmark = pytest.mark.slow


@pytest.fixture
def on_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """The rows compare the CPU with itself; torch cannot tell synchronisations of a CPU."""
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    return Bench(
        torch.device("cpu"), tmp_path, tmp_path / "kept", encoder="small", sizes=(16,),
        batches=(8,), networks=(("small", 16, 8),), methods=("mtcon",), num_images=60, steps=7,
        compile=("none",), seconds=0.0, elements=64, processes=(1, 2), warm_up=1,
        winner={"epochs": 2, "at_once": 2, "temperatures": (0.1, 0.5), "size": 16,
                "encoder": "small", "cpus": 1, "gpus": 0, "batch_size": 16},
    )  # fmt: skip


def test_rows_on_a_cpu(on_cpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("methods", "views", "optimizers", "chunks", "streaming", "resume", "checkpoints")
    passed = measure(names, on_cpu, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    assert re.search(r"methods: mtcon *\| loss 0e\+00, gradients 0e\+00, no sync", output)
    assert re.search(r"resume: CPU, GPU, CPU *\| parameters 0e\+00 ", output)


def test_our_training_is_timed_beside_peers_and_limits(
    on_cpu: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "speed", "network", "small_batch", "parts", "peers"
    monkeypatch.setattr(limits, "WAYS", {"as it is": limits.WAYS["as it is"]})
    passed = measure(names, on_cpu, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    assert re.search(r"a step is \d+\.\d+ of the captured network; \d+ % of the rate", output)
    assert re.search(r"ms a step, \d+\.\d+ without: \d+\.\d+ of it", output)
    assert re.search(r"heads in one product \d+\.\d+ ms \(\d+\.\d%\), SGD \d", output)
    times = r"views/s, an epoch \d+\.\d+ s, the first \d+\.\d s"
    assert len(re.findall(times, output)) + output.count("not run: No module named") == 7
    assert re.search(f"as SupContrast, autocast *\\| [\\d,]+ {times}", output)


def test_a_call_out_of_time_is_continued(on_cpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def line(name: str) -> str:
        done.append(name)
        sleep(0.05)
        assert done != ["a", "b"], "fails at first"
        return name

    two = [(name, partial(line, name)) for name in "ab"]
    monkeypatch.setitem(rows.ROWS, "two", lambda bench: iter(two))
    for limit, passed in ((0.04, True), (0.04, False), (0.04, True), (inf, True)):
        assert measure(("two",), on_cpu, has_gpu=True, limit=limit) is passed
    assert done == ["a", "b", "b", "a", "b"]
    one = [("c", partial(line, "not run: no package"))]
    monkeypatch.setitem(rows.ROWS, "lacking", lambda bench: iter(one))
    for _ in range(2):
        assert measure(("lacking",), on_cpu, has_gpu=True)
    assert len(done) == 7, "tried again, with the package perhaps"


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
def test_both_commands_find_a_winner(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {task: ["a", "b"] * 64 for task in ("category", "gender", "colour")}
    write_table(on_cpu.folder, split=["train"] * 64 + ["val"] * 32 + ["test"] * 32, **labels)
    make_archive(str(on_cpu.folder / "images"), "gztar", on_cpu.folder / "images")
    monkeypatch.setattr("benchmarks.machine.PHOTOS", on_cpu.folder)
    assert measure(("winner",), on_cpu, has_gpu=True)
    assert "from the first step to the last, " in capsys.readouterr().out


def test_two_ranks_on_the_cpu(on_cpu: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = {n: ranks.trained([on_cpu.device] * n, on_cpu.folder) for n in (1, 2)}
    monkeypatch.setattr(ranks, "trained", lambda devices, folder: trained[len(devices)])
    monkeypatch.setattr("sys.argv", ["benchmarks", "gpu", "ranks", "--cpu"])
    main()
    (wrong := on_cpu.folder / "wrong").write_text(ranks.STORED.read_text().replace(": ", ": 2", 1))
    monkeypatch.setattr(ranks, "STORED", wrong)
    with pytest.raises(AssertionError, match="loss of epoch 1 and the stored value differ by"):
        dict(ranks.ranks(on_cpu))["1 rank"]()
