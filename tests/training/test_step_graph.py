"""Steps by a graph are those of `update`: the same values, by operations recorded once."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.base import metrics
from mtcon_ray.errors import DivergedError, OutOfMemoryError
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.testing import start
from mtcon_ray.training import testing_graph
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.step_graph import WARM_UP, StepGraph, make_graph
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import EACH, WITH_OWN_STATE, make_spec
from tests.training.learners import learner


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with testing_graph.as_on_a_gpu():
        yield


def training(spec: RunSpec, folder: Path, name: str, graph: bool = False, **more: Any) -> Trainer:
    run = start(spec, folder / "store", folder / name, **more)
    if graph:
        run._graph = StepGraph(run.learner, testing_graph.CpuRecorder())
    return run


def check(spec: RunSpec, folder: Path, num_steps: int = WARM_UP + 4) -> None:
    plain, graph = (training(spec, folder, name) for name in ("plain", "graph"))
    testing_graph.check_step_graph(plain, graph, num_steps=num_steps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in WITH_OWN_STATE else pytest.mark.soak) for n in EACH]
)
def test_steps_by_a_graph_are_the_same(name: str, tmp_path: Path) -> None:
    check(make_spec(name), tmp_path)


@pytest.mark.parametrize("optimizer", ["adamw", "lars", {"name": "sgd", "nesterov": True}])
def test_an_optimizer_reads_rate_and_momentum_of_each_step(optimizer: Any, tmp_path: Path) -> None:
    """The rates of an epoch's steps differ. With all augmentations, and a clipped gradient."""
    drawn = {f"views.{name}": 0.5 for name in ("blur", "solarise", "grayscale")}
    changes = {**drawn, "views.second.jitter": 0.0, "train.max_grad_norm": 0.5, "train.ema": 0.9}
    check(with_values(make_spec("mtcon"), {**changes, "train.optimizer": optimizer}), tmp_path)


def test_each_phase_has_a_graph(tmp_path: Path) -> None:
    """LGP hides patches in the first half of the steps, and then learns without its decoder."""
    check(make_spec("lgp", steps=WARM_UP + 2), tmp_path, num_steps=2 * (WARM_UP + 2))


def test_a_whole_training_and_one_that_is_resumed_are_the_same(tmp_path: Path) -> None:
    """Also its metrics: losses of an epoch, weights and cosines of its last step."""
    spec = make_spec("mtcon", steps=6)
    plain, graph = (training(spec, tmp_path, f"{graph}", graph=graph) for graph in (False, True))
    for expected, found in zip(plain, graph, strict=True):
        values = {k: v for k, v in found.metrics.items() if k != metrics.IMAGES_PER_SECOND}
        assert {k: expected.metrics[k] for k in values} == pytest.approx(values, rel=1e-2, abs=1e-2)
    steps = count()
    stopped = training(spec, tmp_path, "stopped", graph=True, should_stop=lambda: next(steps) == 8)
    assert len(list(stopped)) == 1
    resumed = training(spec, tmp_path, "stopped", graph=True)
    assert resumed.step == 8
    assert [progress.epoch for progress in resumed] == [2]
    testing_graph.check_same_state(resumed, graph)
    assert all(isinstance(group["lr"], float) for group in graph.learner.optimizer.param_groups)


def test_the_first_step_that_is_not_finite_is_named(tmp_path: Path) -> None:
    run = training(make_spec("mtcon"), tmp_path, "run", graph=True)
    while run.step < 6:
        run._train_step()
    weight = next(run.network.parameters())
    before = weight.detach().clone()
    with torch.no_grad():
        next(run.learner.method.parameters()).fill_(torch.nan)
    run._train_step()
    run._train_step()
    with pytest.raises(DivergedError, match="at step 7;"):
        run.learner.check()
    assert torch.equal(weight, before)


def test_an_impossible_capture_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The training does without."""
    run = training(make_spec("mtcon"), tmp_path, "run", graph=True)

    def read(output: MethodOutput) -> None:
        next(iter(output.losses.values())).item()

    run.learner.method.after_step = read  # type: ignore[method-assign]
    for _ in range(6):
        run._train_step()
    (message,) = caplog.messages
    told = "operation not permitted when stream is capturing: _local_scalar_dense"
    without = "train.compile graphs: trains without graphs, because capturing failed"
    assert message == f"{without}: {told}"
    assert run._graph is not None
    assert run._graph._recorded is None
    run.learner.check()


def test_a_capture_without_memory_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = training(make_spec("mtcon"), tmp_path, "run", graph=True)
    full = Mock(side_effect=torch.OutOfMemoryError("tried 2 GiB. GPU 0 has 1 GiB free"))
    monkeypatch.setattr(testing_graph.CpuRecorder, "record", full)
    for _ in range(WARM_UP):
        run._train_step()
    with pytest.raises(OutOfMemoryError, match=r"train\.batch_size 16"):
        run._train_step()


NO_GRAPH = [
    ({}, "cpu", 1, "CUDA graphs need a GPU"),
    ({}, "cuda", 2, "the exchange of several workers cannot be captured"),
    ({"precision": "float16"}, "cuda", 1, "float16 scales its loss on the host"),
    ({"batch_size": 8, "chunk_size": 4}, "cuda", 1, "train.chunk_size computes a step in part"),
    ({"optimizer": "sgd"}, "cuda", 1, "a plugin's optimizer may compute on the host"),
    ({"optimizer": "adam"}, "cuda", 1, "a plugin's optimizer may compute on the host"),
]


@pytest.mark.parametrize(("changes", "device", "world", "reason"), NO_GRAPH)
def test_where_no_graph_can_be_captured_the_reason_is_logged(
    changes: dict[str, Any], device: str, world: int, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    scaled = torch.float16 if "precision" in changes else None
    made = replace(learner(autocast=scaled), ranks=Ranks(0, world))
    if reason.startswith("a plugin"):
        kind = torch.optim.Adam if changes["optimizer"] == "adam" else torch.optim.RMSprop
        made = replace(made, optimizer=kind(made.network.parameters()))
    assert make_graph(made, TrainSpec(compile="graphs", **changes), torch.device(device)) is None
    (message,) = caplog.messages
    assert message.startswith(f"train.compile graphs: trains without graphs, because {reason}")
    assert make_graph(made, TrainSpec(), torch.device(device)) is None
    assert len(caplog.messages) == 1
