"""Tests of functions that are compiled within a training: conditions, results, and fallback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit

from mtcon_ray.data.augmentations import _blend_, _shift_hue_
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.fusing import CALLS, Renewing, fused, fusible
from mtcon_ray.run import Run
from mtcon_ray.spec import parse_spec
from tests.compiling import run_apart

# Compares compiled views with eager ones, for batches with varying sizes of sub-batches.
VIEWS = """
import torch
from mtcon_ray.data.augmentations import _blend_, _shift_hue_
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.fusing import fused

images = torch.randint(0, 256, (12, 20, 20, 3), dtype=torch.uint8)
spec = ViewsSpec(size=16)
for seed in range(6):
    drawn = draw_parameters(24, 20, spec, torch.Generator().manual_seed(seed))
    with fused():
        found = make_views(images, drawn, spec)
    torch.testing.assert_close(found, make_views(images, drawn, spec), rtol=1e-4, atol=1e-4)
calls = [each._call is each._function for each in (_blend_, _shift_hue_)]
print("as they are" if all(calls) else "compiled" if not any(calls) else calls)
"""


class Compiler:
    """Stand-in for torch.compile that records calls, and raises `error` if given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked: list[str] = []
        self.calls = 0

    def __call__(self, function: Callable[..., Any], **_: object) -> Callable[..., Any]:
        self.asked.append(function.__name__)

        def call(*args: Tensor) -> Any:
            self.calls += 1
            if self.error is not None:
                raise self.error
            return function(*args)

        return call


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """Replaces torch.compile by a recorder and returns it."""
    found = Compiler()
    monkeypatch.setattr(torch, "compile", found)
    return found


def double(x: Tensor) -> Tensor:
    return 2 * x


def add_to_two(x: Tensor) -> Tensor:
    return torch.ones(2) + x


def test_a_function_is_compiled_once_and_only_where_that_is_asked(compiler: Compiler) -> None:
    doubled = fusible(double)
    assert doubled(torch.ones(())) == 2
    with fused(False):
        doubled(torch.ones(()))
    assert compiler.asked == []
    with fused():
        doubled(torch.ones(()))
        assert doubled(torch.ones(())) == 2
    doubled(torch.ones(()))
    assert compiler.asked == ["double"]
    assert compiler.calls == 2


def test_what_fails_to_compile_is_called_as_it_is_and_the_reason_said_once(
    compiler: Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    compiler.error = RuntimeError("no kernel\nfor this")
    doubled = fusible(double)
    with fused():
        assert doubled(torch.ones(())) == 2
        assert doubled(torch.ones(())) == 2
    assert compiler.calls == 1
    assert caplog.messages == ["double is not compiled: compiling failed: RuntimeError: no kernel"]


@pytest.mark.parametrize(("calls", "resets"), [(CALLS + 9, 2), (CALLS - 9, 1)])
def test_all_begins_anew_once_in_so_many_calls(
    calls: int, resets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler is reset at its recompile limit, at most once in CALLS calls.

    A function that reaches the limit again sooner raises.
    """
    dropped: list[bool] = []
    full = [True]

    def compiled() -> int:
        if full[0]:
            raise FailOnRecompileLimitHit("recompile_limit reached")
        return 5

    def reset() -> None:
        dropped.append(True)
        full[0] = False

    monkeypatch.setattr(torch.compiler, "reset", reset)
    renewing = Renewing(compiled)
    assert [renewing() for _ in range(calls)] == [5] * calls
    full[0] = True
    if resets == 2:
        assert renewing() == 5
    else:
        with pytest.raises(FailOnRecompileLimitHit):
            renewing()
    assert len(dropped) == resets


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_wrong_argument_is_refused_as_ever(
    compiler: Compiler, caplog: pytest.LogCaptureFixture, is_compiled: bool
) -> None:
    added = fusible(add_to_two)
    for _ in range(2):
        with fused(is_compiled), pytest.raises(RuntimeError, match="size of tensor"):
            added(torch.ones(3))
    assert len(caplog.messages) == is_compiled


def test_memory_that_is_out_is_no_fault_of_the_compiler(compiler: Compiler) -> None:
    compiler.error = torch.OutOfMemoryError("too much")
    with fused(), pytest.raises(torch.OutOfMemoryError):
        fusible(double)(torch.ones(()))


@pytest.mark.parametrize(
    ("compile", "compiled"), [("none", set()), ("kernels", {"forward", "_blend_", "_shift_hue_"})]
)
def test_what_a_training_compiles(
    compiler: Compiler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compile: str,
    compiled: set[str],
) -> None:
    monkeypatch.setattr(_blend_, "_call", None)
    monkeypatch.setattr(_shift_hue_, "_call", None)
    spec = parse_spec(
        {
            "name": "tiny",
            "data": {"kind": "drawn", "num_items": 50, "tasks": ["shape"]},
            "views": {"size": 24},
            "model": {"encoder": {"name": "small", "width": 4}, "head_dim": 8},
            "method": {"name": "mtcon"},
            "train": {"epochs": 2, "warmup_epochs": 1, "batch_size": 16, "compile": compile},
            "evaluate": {"bootstrap": 10},
        }
    )
    dataset = open_dataset(spec.data, seed=0, view_size=24, store=tmp_path / "store")
    list(Run(spec, dataset, tmp_path, device=torch.device("cpu"), threads=1))
    assert set(compiler.asked) == compiled
    assert len(compiler.asked) == len(compiled)


def test_views_without_a_compiler(tmp_path: Path) -> None:
    printed, logged = run_apart(VIEWS, tmp_path, CXX="/nowhere/g++")
    assert printed == "as they are"
    assert logged.count("_blend_ is not compiled: compiling failed") == 1


@pytest.mark.soak
def test_fused_views_are_the_views(tmp_path: Path) -> None:
    """Compiled views equal eager ones. Compiling takes half a minute."""
    printed, logged = run_apart(VIEWS, tmp_path)
    assert printed == "compiled", logged
