"""A compiled forward is the network's own; without a compiler the network is called as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtcon_ray.models.network import Network, build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.compiled import Compiled, keep_gradients

MAKE = """
import torch
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.distributed import ALONE, parallelise

encoder = {"name": "vit", "patch": 8, "width": 8, "depth": 1, "heads": 1}
spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": 4})
network = build_network(spec, projections(("a", "b"), dim=4, hidden=None), 0).double()
names = list(network.state_dict())
network, forward = parallelise(network, ALONE, batch_norm="local", compile="kernels")
assert list(network.state_dict()) == names
x = torch.randn(6, 3, 16, 16, dtype=torch.float64)

def gradients(call):
    network.zero_grad()
    sum((i + 1) * z.square().sum(0)[0] for i, z in enumerate(call(x).values())).backward()
    return [p.grad.clone() for p in network.parameters()]

expected, found = gradients(network), gradients(forward)
for one, other in zip(found, expected, strict=True):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
gradients(forward)
print("compiled" if forward._call is not None else "as it is")
"""


# Stands for a forward that compiles and a backward that does not.
NO_BACKWARD = """
from functorch.compile import make_boxed_func
from torch._inductor import compile_fx

def forward(graph, *_, **__):
    return make_boxed_func(graph.forward)

def backward(*_, **__):
    raise RuntimeError("no kernel for the backward")

compile_fx.compile_fx_forward, compile_fx.compile_fx_backward = forward, backward
"""


def run(folder: Path, *, before: str = "", **variables: str) -> tuple[str, str]:
    """What a fresh process prints and logs, without kernels of an earlier one."""
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", before + MAKE],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_without_a_compiler_the_network_is_called_as_it_is_and_the_reason_said_once(
    tmp_path: Path,
) -> None:
    printed, logged = run(tmp_path, CXX="/nowhere/g++")
    assert printed == "as it is"
    assert logged.count("train.compile kernels: trains without, for compiling failed") == 1


def test_a_backward_that_cannot_be_compiled_is_found_before_the_forward_has_run(
    tmp_path: Path,
) -> None:
    printed, logged = run(tmp_path, before=NO_BACKWARD)
    assert printed == "as it is"
    assert logged.count("compiling failed: RuntimeError: no kernel for the backward") == 1


class Replaying(Compiled):
    """As CUDA graphs do it: the next call writes over the gradients that the one before gave."""

    def __init__(self, network: Network) -> None:
        super().__init__(network, "kernels")
        self.replays = True
        self.given: list[Tensor] = []
        for parameter in network.parameters():
            parameter.register_post_accumulate_grad_hook(self._remember)

    def _remember(self, parameter: Tensor) -> None:
        assert parameter.grad is not None
        self.given.append(parameter.grad)

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        for gradient in self.given:
            gradient.fill_(torch.nan)
        self.given.clear()
        z_by_head: dict[str, Tensor] = self.network(x_NCHW)
        return z_by_head


def small_network() -> Network:
    """Without batch norm."""
    encoder = {"name": "vit", "patch": 8, "width": 8, "depth": 1, "heads": 1}
    spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": 4})
    return build_network(spec, projections(("a",), dim=4, hidden=None), 0).double()


def test_gradients_outlive_the_next_replay() -> None:
    x_NCHW = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    plain, network = small_network(), small_network()
    plain(x_NCHW)["a"].square()[:, 0].sum().backward()
    replaying = Replaying(network)
    for part in x_NCHW.split(2):
        keep_gradients(replaying)
        replaying(part)["a"].square()[:, 0].sum().backward()
    for one, other in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.soak
def test_compiled_gradients_are_those_of_the_network(tmp_path: Path) -> None:
    """A minute of compiling."""
    printed, _ = run(tmp_path)
    assert printed == "compiled"
