"""torch.compile in a process of its own, and a stand-in for it with CUDA graphs."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.training.compiled import Compiled


def run_apart(program: str, kernels: Path, **variables: str) -> tuple[str, str]:
    """Returns what a fresh process prints and logs, without kernels of an earlier one."""
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(kernels)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def replaying(network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """Returns the network as if CUDA graphs had been captured of it, on the CPU.

    As a replay does, each call overwrites the outputs and gradients of the call before.
    """
    given: list[Tensor] = []

    def compile_(forward: Callable[[Tensor], dict[str, Tensor]], **options: Any) -> Any:
        assert options == {"fullgraph": True, "dynamic": False, "mode": "reduce-overhead"}

        def replay(x_NCHW: Tensor) -> dict[str, Tensor]:
            with torch.no_grad():
                for earlier in given:
                    earlier.fill_(torch.nan)
            given.clear()
            z_by_head = forward(x_NCHW)
            given.extend(z_by_head.values())
            return z_by_head

        return replay

    def remember(parameter: Tensor) -> None:
        assert parameter.grad is not None
        given.append(parameter.grad)

    for parameter in network.parameters():
        parameter.register_post_accumulate_grad_hook(remember)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", compile_)
        patch.setattr(nn.Parameter, "is_cuda", True, raising=False)
        return Compiled(network)
