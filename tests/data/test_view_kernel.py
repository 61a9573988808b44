"""The Triton kernel of views without a GPU: run by Triton's interpreter, and compiled for a GPU."""

import ast
import inspect
import logging
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.data.views import view_kernel
from tests.processes import run_python

triton = pytest.importorskip("triton", reason="this torch brings no Triton")

# Run in a process of its own: Triton decides when it is imported whether it interprets.
INTERPRETED = """
from unittest.mock import Mock, patch

import torch
from mtcon_ray.data import view_kernel, views

def check(size, source_size, **fields):
    spec = views.ViewsSpec(size=size, **fields)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, source_size, source_size, 3), generator=generator).byte()
    parameters = views.draw_parameters(4, source_size, spec, generator)
    expected = views.make_views(images, parameters, spec)
    kernel = Mock(wraps=view_kernel.coloured_crops)
    with patch.object(views, "view_kernel", return_value=kernel):
        found = views.make_views(images, parameters, spec)
    assert found.stride() == expected.stride(), fields
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    return kernel.call_args.kwargs.keys() - {"box", "flip"}

# What the spec never draws is not computed.
usual = {"blend", "shift", "gray", "moments"}
assert check(24, 30) == usual  # more pixels than are computed at a time
assert check(9, 30, crop_scale=(0.05, 1.0)) == usual
assert check(9, 30, blur=0.5, solarise=0.5) == usual - {"moments"}
plain = {"jitter": 0.0, "grayscale": 0.0, "second": {"solarise": 0.5}}
assert check(9, 12, **plain) == {"moments", "threshold"}
assert check(9, 12, jitter=1.0, hue=0.0, solarise=1.0) == usual - {"shift"} | {"threshold"}
view_kernel.try_kernel(torch.device("cpu"))
print("checked")
"""


@pytest.mark.slow
def test_interpreted_it_gives_the_views_of_torchs_operations() -> None:
    done = run_python("-c", INTERPRETED, TRITON_INTERPRET="1")
    assert done.stdout == "checked\n", done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("all_drawn", [True, False])
def test_compiles_for_gpu(all_drawn: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter accepts Python that Triton cannot compile, so this is compiled, too."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from mtcon_ray.data.view_kernel import kernel

    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    types = {"images": "*u8", "box": "*i64", "flip": "*i1", "out": "*fp32"}
    drawn = {"gray": "*i1"} | dict.fromkeys(("blend", "shift", "threshold", "moments"), "*fp32")
    sizes = {"views_per_image": 2, "source_size": 30, "size": 24, "num_taps": 3}
    strides = {"channel_stride": 1, "column_stride": 3}
    constants = {**sizes, **strides, **({} if all_drawn else dict.fromkeys(drawn))}
    signature = {**types, **drawn, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(kernel, {n: signature[n] for n in kernel.arg_names}, constexprs=constants)
    options = {"num_warps": 8, "enable_fp_fusion": True}
    assert triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options).asm["cubin"]


def test_the_oldest_triton_can_read_it() -> None:
    """Triton 3.6 fails for a comprehension with several variables."""
    from mtcon_ray.data import view_kernel

    nodes = ast.walk(ast.parse(inspect.getsource(view_kernel)))
    loops = {type(node.target) for node in nodes if isinstance(node, ast.comprehension)}
    assert loops == {ast.Name}


def test_without_a_compiler_a_warning_says_so_and_torchs_operations_remain(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fail = Mock(side_effect=RuntimeError("Failed to find C compiler.\nPlease install one"))
    monkeypatch.setattr("mtcon_ray.data.view_kernel.try_kernel", fail)
    with caplog.at_level(logging.WARNING):
        assert view_kernel.__wrapped__(torch.device("cuda")) is None
    assert caplog.messages == [
        "views take several times as long, because Triton does not run: Failed to find C compiler."
    ]
    assert view_kernel(torch.device("cpu")) is None
