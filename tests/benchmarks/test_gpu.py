"""`python -m benchmarks gpu`: its rows on a simulated GPU, where nothing has a value, and on a CPU.

The simulated GPU finds tensors on the wrong device and synchronisations; the CPU finds wrong
values and wrong tables.
"""

import re
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from benchmarks import __main__ as command
from benchmarks.gpu import rows, speed, values
from benchmarks.gpu.bench import Bench, kept_images, random_images
from benchmarks.gpu.rows import ROWS, measure
from mtcon_ray import trainer
from mtcon_ray.data.views import make_views
from mtcon_ray.errors import DivergedError
from mtcon_ray.paths import LAST_FILE
from mtcon_ray.training import checkpoint, step_graph
from mtcon_ray.training.nonfinite import Watch
from mtcon_ray.training.step import update
from tests.pretended_gpu import Pretence, pretended_gpu

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SOAK = pytest.mark.soak  # seconds each, of a simulated GPU that does not hurry


@pytest.fixture
def simulate(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pretence], None]:
    """Replaces what needs a real GPU, and comparisons of values, which the simulated one lacks."""

    def replace_(gpu: Pretence) -> None:
        def debug(mode: str) -> None:
            gpu.reads = mode == "default"

        kept: dict[Path, dict[str, Any]] = {}

        def save(path: Path, state: dict[str, Any], **options: Any) -> None:
            """Keeps a CPU's checkpoint; one of the simulated GPU has no values."""
            if not any(x.is_cuda for x in state["network"].values()):
                kept[path] = state

        def load(folder: Path, **options: Any) -> tuple[Any, Path | None, None]:
            path = folder / LAST_FILE
            return (kept[path], path, None) if path in kept else (None, None, None)

        def double(module: nn.Module) -> None:
            """Converts parameters and buffers, of which torch cannot replace simulated ones."""
            for x in (*module.parameters(), *module.buffers()):
                if x.is_floating_point():
                    x.data = x.data.double()

        found = SimpleNamespace(name="simulated", major=9, minor=0, multi_processor_count=1)
        for target, name, new in (
            (torch.cuda, "set_sync_debug_mode", debug),
            (torch.cuda, "synchronize", lambda device: None),
            (torch.cuda, "get_device_properties", lambda device: found),
            (torch.testing, "assert_close", lambda *given, **options: None),
            (step_graph, "CudaRecorder", Recorder),
            (nn.Module, "double", double),
            (checkpoint, "save", save),
            (checkpoint, "load_newest", load),
            (speed, "profile", Profile),
            (values, "check", lambda what, error, most: what),
            (speed, "check", lambda what, error, most: what),
        ):
            monkeypatch.setattr(target, name, new)

    return replace_


def refuse_second_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the second training's step run out of memory."""
    made: list[bool] = []

    def once(*given: Any, **options: Any) -> Any:
        made.append(True)
        if len(made) == 2:
            raise torch.OutOfMemoryError("tried 2 GiB. GPU 0 has 1 GiB free")
        return update(*given, **options)

    monkeypatch.setattr(trainer, "update", once)


def diverged(watch: Watch) -> None:
    raise DivergedError("not finite")


class Recorder:
    """Stands for the capture of CUDA graphs on a GPU without values; a replay does nothing."""

    def __init__(self, device: torch.device) -> None:
        pass

    def beside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record(self, do: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        return (lambda: None), do()


class Profile:
    """A profile of three steps: each launches two kernels of a millisecond, and one graph."""

    def __init__(self, *, activities: list[Any]) -> None:
        pass

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def key_averages(self) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(
                key=key,
                count=count,
                self_device_time_total=microseconds,
                device_type=device,
                is_user_annotation=is_range,
            )
            for key, count, microseconds, device, is_range in (
                ("cudaLaunchKernelExC", 6, 0.0, DeviceType.CPU, False),
                ("cudaGraphLaunch", 3, 0.0, DeviceType.CPU, False),
                ("aten::mm", 6, 6000.0, DeviceType.CPU, False),
                ("gemm", 6, 6000.0, DeviceType.CUDA, False),
                ("Optimizer.step", 3, 6000.0, DeviceType.CUDA, True),
            )
        ]


def results(output: str) -> dict[str, str]:
    """Returns each line's result by its name."""
    lines = output.splitlines()[2:]
    return {cells[1].strip(): cells[2].strip() for cells in (line.split("|") for line in lines)}


def test_without_a_gpu_each_row_says_so(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(tuple(ROWS), bench, has_gpu=False)
    assert results(capsys.readouterr().out) == dict.fromkeys(ROWS, "none at hand: not run")


@pytest.mark.parametrize(
    ("row", "name", "text"),
    [
        ("device", "device: GPU", "simulated, compute capability 9.0"),
        ("launch", "launch: a kernel of one element", " us"),
        ("methods", "methods: mtcon", "loss, gradients, no synchronisation"),
        ("checkpoints", "checkpoints: batch 8", " slower steps"),
        ("speed", "speed: 16 px, batch 8, compile none", ", 3 launches, GPU busy"),
        pytest.param("views", "views: 37 px, blur", "values", marks=SOAK),
        pytest.param("optimizers", "optimizers: lars", "stopped by a loss", marks=SOAK),
        pytest.param("chunks", "chunks: mtcon", "gradients equal, no sync", marks=SOAK),
        pytest.param("streaming", "streaming: views", "equal, no sync", marks=SOAK),
        pytest.param("resume", "resume: CPU, GPU, CPU", "parameters", marks=SOAK),
        ("probes", "probes: 60 images", " on the CPU by one thread in "),
        ("compile", "compile: graphs", "; loss; nothing fell back"),
        ("graphs", "graphs: mtcon", "losses, parameters, no synchronisation"),
        ("memory", "memory: too large a batch, then a good one", "must fit"),
    ],
)
def test_rows_on_a_simulated_gpu(
    row: str,
    name: str,
    text: str,
    bench: Bench,
    simulate: Callable[[Pretence], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if row == "memory":
        refuse_second_trainer(monkeypatch)
    if row == "optimizers":
        monkeypatch.setattr(Watch, "check", diverged)
    with pretended_gpu(monkeypatch) as gpu:
        simulate(gpu)
        passed = measure([row], bench, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    assert text in results(output)[name]


def test_rows_on_a_cpu(on_cpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("methods", "views", "optimizers", "chunks", "streaming", "resume", "checkpoints")
    passed = measure(names, on_cpu, has_gpu=True)
    output, errors = capsys.readouterr()
    assert passed, errors
    found = results(output)
    assert found["methods: mtcon"] == "loss 0e+00, gradients 0e+00, no synchronisation"
    assert found["optimizers: sgd without momentum"].startswith("parameters 0e+00, stopped by")
    assert found["resume: CPU, GPU, CPU"] == "parameters 0e+00"
    percent = r"\d+ ms, [\d.]+ % of an epoch of [\d.]+ s"
    expected = f"\\d+ MB of an epoch: the training waits {percent}; with a thread {percent}, and .*"
    assert re.fullmatch(expected, found["checkpoints: batch 8"])


def test_a_line_that_fails_is_shown_and_the_next_one_measured(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Here the second trainer of each pair, the GPU's in earnest, makes other views."""
    made: list[bool] = []

    def wrong_for_the_gpu(*given: Any) -> torch.Tensor:
        made.append(True)
        return make_views(*given) + (1e-3 if len(made) == 1 else 0.0)

    monkeypatch.setattr(values, "make_views", wrong_for_the_gpu)
    assert not measure(["views"], on_cpu, has_gpu=True)
    first, second, *_ = results(capsys.readouterr().out).values()
    assert first.startswith("failed: AssertionError: values differ by")
    assert second == "values 0e+00"


def test_a_synchronisation_is_counted_with_its_line(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waiting(*given: Any, **options: Any) -> Any:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        return update(*given, **options)

    monkeypatch.setattr(trainer, "update", waiting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not measure(["methods"], on_cpu, has_gpu=True)
    result = results(capsys.readouterr().out)["methods: mtcon"]
    assert "1 synchronisations a step, at test_gpu.py:" in result


def test_nothing_is_begun_after_the_limit(
    on_cpu: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(["views"], on_cpu, has_gpu=True, limit=-1)
    assert all("not run: -1 s are over" in r for r in results(capsys.readouterr().out).values())


def test_images_are_made_once(tmp_path: Path) -> None:
    made = kept_images(20, 4, tmp_path)
    (path,) = tmp_path.iterdir()
    before = path.stat().st_mtime_ns
    again = kept_images(20, 4, tmp_path)
    assert path.stat().st_mtime_ns == before
    for found in (made, again):
        assert (found.images == random_images(20, 4).images).all()
        assert all((found.table.labels[t] == made.table.labels[t]).all() for t in made.tasks)


def test_rows_and_stages_are_named_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def main(names: list[str]) -> bool:
        asked.append(names)
        return names == []

    monkeypatch.setattr(rows, "main", main)
    for arguments, status in ((["gpu"], 0), (["gpu", "views", "speed"], 1), (["gpu", "sped"], 2)):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
        try:
            command.main()
            found = 0
        except SystemExit as ended:
            found = ended.code  # type: ignore[assignment]
        assert found == status
    assert asked == [[], ["views", "speed"]]
    assert "ROW must be one of device, launch" in capsys.readouterr().err


def test_launches_and_busy_time_are_those_of_a_step(
    on_cpu: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps are profiled. The time of a kernel is counted once."""
    monkeypatch.setattr(speed, "profile", Profile)
    run = on_cpu.run(on_cpu.spec(size=16, batch_size=8), "run")
    assert speed.profiled(run) == (3.0, 0.002)
