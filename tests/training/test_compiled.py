"""Compiled networks compute the same function; without a compiler the plain network runs."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.models.batch_norm import make_global
from mtcon_ray.models.network import Network, build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training import step
from mtcon_ray.training.compiled import Compiled, keep_gradients
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.spec import TrainSpec
from mtcon_ray.training.step import Learner, compute_gradients
from tests.compiling import run_apart
from tests.problems import problem

MAKE = """
import torch
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.distributed import ALONE, Ranks, parallelise

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


# Simulates a compiler that compiles the forward pass but fails for the backward pass.
NO_BACKWARD = """
from functorch.compile import make_boxed_func
from torch._inductor import compile_fx

def forward(graph, *_, **__):
    return make_boxed_func(graph.forward)

def backward(*_, **__):
    raise RuntimeError("no kernel for the backward")

compile_fx.compile_fx_forward, compile_fx.compile_fx_backward = forward, backward
"""


# Several trials in one process exceed the number of shapes for which torch compiles a function.
MANY = """
from functools import partial

import torch
from mtcon_ray.fusing import fused, fusible
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.compiled import Compiled

torch.compile = partial(torch.compile, backend="eager")

@fusible
def double(x):
    return 2 * x

forwards = []
for width in range(4, 4 + 12):
    spec = ModelSpec.model_validate({"encoder": {"name": "small", "width": width}, "head_dim": 4})
    network = build_network(spec, projections(("a",), dim=4, hidden=None), 0).eval()
    forwards.append(Compiled(network, "kernels"))
    x = torch.randn(width, 3, 16, 16)
    torch.testing.assert_close(forwards[-1](x), network(x))
with fused():
    for rank in range(12):
        assert double(torch.ones((1,) * rank)).item() == 2
kept = [forward._call is not None for forward in forwards] + [double._call is not double._function]
print("compiled" if all(kept) else kept)
"""


def test_more_shapes_than_torch_compiles_for_are_compiled(tmp_path: Path) -> None:
    printed, logged = run_apart(MANY, tmp_path)
    assert printed == "compiled"
    assert "trains without" not in logged


def test_batch_norm_over_several_gpus_is_not_replayed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr("mtcon_ray.training.compiled._is_on_gpu", lambda _: True)
    network = small_learner().network
    make_global(network)
    assert not Compiled(network, "graphs").replays
    assert "compiles kernels alone" in caplog.text
    assert "model.batch_norm: local" in caplog.text


@pytest.mark.parametrize("on_gpu", [True, False])
def test_earlier_trainings_recordings_go(monkeypatch: pytest.MonkeyPatch, on_gpu: bool) -> None:
    dropped: list[bool] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: dropped.append(True))
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    monkeypatch.setattr("mtcon_ray.training.compiled._is_on_gpu", lambda _: on_gpu)
    assert Compiled(small_network(), "graphs").replays == on_gpu
    Compiled(small_network(), "kernels")
    assert dropped == [True] * on_gpu


def test_without_a_compiler_the_network_is_called_as_it_is_and_the_reason_said_once(
    tmp_path: Path,
) -> None:
    printed, logged = run_apart(MAKE, tmp_path, CXX="/nowhere/g++")
    assert printed == "as it is"
    assert logged.count("train.compile kernels: trains without, for compiling failed") == 1


def test_a_backward_that_cannot_be_compiled_is_found_before_the_forward_has_run(
    tmp_path: Path,
) -> None:
    printed, logged = run_apart(NO_BACKWARD + MAKE, tmp_path)
    assert printed == "as it is"
    assert logged.count("compiling failed: RuntimeError: no kernel for the backward") == 1


class Replaying(Compiled):
    """A stand-in for CUDA graphs: each call overwrites the gradients of the call before."""

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
    """Returns a network without batch norm."""
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


class Uncapturable(Compiled):
    """A stand-in for a network whose backward pass cannot be captured in a CUDA graph."""

    def __init__(self, network: Network) -> None:
        super().__init__(network, "kernels")
        self.replays = True

    def forward(self, x_NCHW: Tensor) -> dict[str, Tensor]:
        z_by_head: dict[str, Tensor] = self.network(x_NCHW)
        if self.replays and torch.is_grad_enabled():
            next(iter(z_by_head.values())).register_hook(self._fail)
        return z_by_head

    def _fail(self, _: Tensor) -> None:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")


def small_learner() -> Learner:
    """Returns a learner with one head and batch norm."""
    spec = ModelSpec.model_validate({"encoder": {"name": "small", "width": 4}, "head_dim": 8})
    method = MTCon(MTCon.Spec(), problem("shape", head_dim=8))
    network = build_network(spec, method.make_network, seed=0)
    optimizer = make_optimizer(network, method, TrainSpec())
    return Learner(network, network, method, optimizer, ALONE)


@pytest.mark.parametrize("in_chunks", [False, True])
def test_a_backward_that_cannot_be_captured_is_done_again_without(
    caplog: pytest.LogCaptureFixture, in_chunks: bool
) -> None:
    x_NCHW, batch = torch.randn(8, 3, 16, 16), Batch({"shape": torch.tensor([0, 0, 1, 1])}, 4)
    views = [partial(x_NCHW.__getitem__, slice(i, i + 4)) for i in (0, 4)] if in_chunks else x_NCHW
    plain, other = small_learner(), small_learner()
    done = compute_gradients(plain, views, batch)
    replaying = replace(other, forward=Uncapturable(other.network))
    again = compute_gradients(replaying, views, batch)
    torch.testing.assert_close(again.objective, done.objective)
    for one, two in zip(plain.network.parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)
    torch.testing.assert_close(
        dict(other.network.named_buffers()), dict(plain.network.named_buffers())
    )
    assert caplog.messages == [
        "train.compile kernels: trains without, for compiling failed: RuntimeError: operation "
        "not permitted"
    ]


@pytest.mark.parametrize(
    ("error", "world"), [(torch.OutOfMemoryError("too much"), 1), (RuntimeError("no capture"), 2)]
)
def test_a_step_is_not_done_again_without_memory_or_beside_others(
    monkeypatch: pytest.MonkeyPatch, error: Exception, world: int
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(step, "_gradients", fail)
    learner = small_learner()
    forward = Uncapturable(learner.network)
    learner = replace(learner, forward=forward, ranks=Ranks(0, world))
    with pytest.raises(type(error)):
        compute_gradients(learner, torch.randn(4, 3, 16, 16), Batch({}, 2))
    assert forward.replays


def test_an_error_of_a_network_that_replays_nothing_is_raised() -> None:
    learner = small_learner()
    next(learner.network.parameters()).register_hook(lambda _: 1 / 0)
    batch = Batch({"shape": torch.tensor([0, 0])}, 2)
    with pytest.raises(ZeroDivisionError):
        compute_gradients(learner, torch.randn(4, 3, 16, 16), batch)


@pytest.mark.soak
def test_compiled_gradients_are_those_of_the_network(tmp_path: Path) -> None:
    """Compiling takes a minute."""
    printed, _ = run_apart(MAKE, tmp_path)
    assert printed == "compiled"
