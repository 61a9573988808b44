"""A compiled forward is the network's own; where it cannot be compiled the network is called."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.models.network import Network, build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.compiled import Compiled
from mtcon_ray.training.distributed import ALONE, parallelise
from tests.compiling import replaying, run_apart

# Compiles on a CPU what is compiled on a GPU alone; without one torch leaves CUDA graphs out.
MAKE = """
import torch
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.distributed import ALONE, parallelise

torch.nn.Parameter.is_cuda = True
torch.set_num_threads(1)
encoder = {"name": "vit", "patch": 8, "width": 8, "depth": 1, "heads": 1}
spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": 4})
network = build_network(spec, projections(("a", "b"), dim=4, hidden=None), 0).double()
names = list(network.state_dict())
network, forward = parallelise(network, ALONE, batch_norm="local", compile="graphs")
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
assert torch._inductor.config.compile_threads == 1
print("compiled" if forward._call is not None else "uncompiled")
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


def small_network(encoder: str = "vit") -> Network:
    """One head; `vit` has no batch norm, `small` has."""
    specs = {
        "vit": {"name": "vit", "patch": 8, "width": 8, "depth": 1, "heads": 1},
        "small": {"name": "small", "width": 4},
    }
    spec = ModelSpec.model_validate({"encoder": specs[encoder], "head_dim": 4})
    return build_network(spec, projections(("a",), dim=4, hidden=None), 0).double()


def images(num_images: int) -> Tensor:
    return torch.randn(num_images, 3, 16, 16, dtype=torch.float64)


def test_without_a_gpu_the_network_is_called_uncompiled(caplog: pytest.LogCaptureFixture) -> None:
    network = small_network()
    same, forward = parallelise(network, ALONE, batch_norm="local", compile="graphs")
    x_NCHW = images(2)
    assert same is network
    for _ in range(2):
        assert torch.equal(forward(x_NCHW)["a"], network(x_NCHW)["a"])
    assert caplog.messages == ["train.compile graphs: trains without, for CUDA graphs need a GPU"]


def test_batch_norm_over_several_gpus_is_not_captured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nn.Parameter, "is_cuda", True, raising=False)
    monkeypatch.setattr(torch, "compile", None)  # called, it would be an error
    Compiled(nn.SyncBatchNorm.convert_sync_batchnorm(small_network("small")))
    (message,) = caplog.messages
    assert message.endswith(
        "trains without, for global batch norm exchanges moments; model.batch_norm: local does not"
    )


def test_an_earlier_trainings_graphs_are_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And with them the count of recompilations, which has a limit in a process."""
    resets: list[bool] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append(True))
    Compiled(small_network())
    assert resets == []
    replaying(small_network(), monkeypatch)
    assert resets == [True]


@pytest.mark.slow
def test_without_a_compiler_the_network_is_called_and_the_reason_logged_once(
    tmp_path: Path,
) -> None:
    printed, logged = run_apart(MAKE, tmp_path, CXX="/nowhere/g++")
    assert printed == "uncompiled"
    assert logged.count("train.compile graphs: trains without, for compiling failed") == 1


@pytest.mark.slow
def test_a_backward_that_cannot_be_compiled_is_found_before_the_forward_has_run(
    tmp_path: Path,
) -> None:
    printed, logged = run_apart(NO_BACKWARD + MAKE, tmp_path)
    assert printed == "uncompiled"
    assert logged.count("compiling failed: RuntimeError: no kernel for the backward") == 1


@pytest.mark.slow
@pytest.mark.parametrize("error", [RuntimeError("\nno kernel\nfor this"), None])
def test_a_failed_compilation_moves_no_moment_and_no_memory_error_is_hidden(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Tensor) -> dict[str, Tensor]:
        raise error or torch.OutOfMemoryError("too much")

    network, plain = small_network("small"), small_network("small")
    forward = replaying(network, monkeypatch)
    forward._call = fail
    x_NCHW = images(4)
    if error is None:
        with pytest.raises(torch.OutOfMemoryError):
            forward(x_NCHW)
        assert forward._call is fail
        return
    assert torch.equal(forward(x_NCHW)["a"], plain(x_NCHW)["a"])
    assert dict(network.named_buffers()).keys() == dict(plain.named_buffers()).keys() != set()
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, plain.get_buffer(name)), name
    reason = "compiling failed: RuntimeError: no kernel"
    assert caplog.messages == [f"train.compile graphs: trains without, for {reason}"]


@pytest.mark.slow
def test_outputs_and_gradients_outlive_the_next_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    x_NCHW = images(4)
    plain, network = small_network(), small_network()
    expected_ND = plain(x_NCHW)["a"]
    expected_ND.square()[:, 0].sum().backward()
    forward = replaying(network, monkeypatch)
    found = []
    for part in x_NCHW.split(2):
        found.append(forward(part)["a"])
        found[-1].square()[:, 0].sum().backward()
    torch.testing.assert_close(torch.cat(found), expected_ND)
    for one, other in zip(network.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


@pytest.mark.soak
def test_compiled_gradients_are_those_of_the_network(tmp_path: Path) -> None:
    """A minute of compiling."""
    printed, _ = run_apart(MAKE, tmp_path)
    assert printed == "compiled"
