"""A compiled forward is the network's own; without a compiler the network is called as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def run(folder: Path, **variables: str) -> tuple[str, str]:
    """What a fresh process prints and logs, without kernels of an earlier one."""
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", MAKE],
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


@pytest.mark.soak
def test_compiled_gradients_are_those_of_the_network(tmp_path: Path) -> None:
    """A minute of compiling."""
    printed, _ = run(tmp_path)
    assert printed == "compiled"
