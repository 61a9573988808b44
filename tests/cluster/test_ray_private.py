"""The uses of Ray's private interfaces that no test of their users covers."""

import time
from functools import partial
from pathlib import Path
from socket import socket
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray._private import services, state
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.callback import WorkerCallback

from mtcon_ray.cluster.ray_private import (
    elastic_trainer,
    patient_start,
    wait_for_dashboard,
    worker_callback,
)
from mtcon_ray.sweep.distributed_trial import usable_workers


@pytest.mark.parametrize("runs", [True, False])
def test_the_dashboard_of_a_head_that_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: "127.0.0.1:6379")
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:6379"} if runs else {})
    with socket() as server:
        server.bind(("127.0.0.1", 0))
        starts = Timer(0.7, server.listen)
        starts.start()
        begin = time.monotonic()
        wait_for_dashboard(f"http://127.0.0.1:{server.getsockname()[1]}", 60)
        waited = time.monotonic() - begin
        starts.join()
    assert (waited > 0.6) == runs
    assert waited < 30


def test_a_dashboard_that_does_not_come_is_waited_for_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "find_bootstrap_address", lambda folder: "127.0.0.1:6379")
    monkeypatch.setattr(services, "find_gcs_addresses", lambda: {"127.0.0.1:6379"})
    wait_for_dashboard("http://127.0.0.1:9", 0)
    wait_for_dashboard("http://elsewhere:8265", 1e9)


@pytest.mark.parametrize(("limit", "registers"), [(20.0, True), (0.0, False)])
def test_a_node_that_registers_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, limit: float, registers: bool
) -> None:
    asked: list[str] = []

    def get_node(address: str, _: str) -> dict[str, str]:
        asked.append(address)
        if len(asked) < 3:
            raise RuntimeError("no such node")
        return {"address": address}

    monkeypatch.setattr(services, "get_node", get_node)
    with patient_start(limit):
        if registers:
            assert services.get_node("here", "node") == {"address": "here"}
            assert asked == ["here"] * 3
        else:
            with pytest.raises(RuntimeError, match="no such node"):
                services.get_node("here", "node")
    assert services.get_node is get_node


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns the scaling policy of a trial with one to four workers and a batch of 64.

    It has `nodes`, of one CPU each, `resizable`, and `draining`.
    """
    given: dict[str, Any] = {}

    def run(self: TorchTrainer, **parts: Any) -> Any:
        given.update(parts)
        return SimpleNamespace(error=None)

    monkeypatch.setattr(TorchTrainer, "_initialize_and_run_controller", run)
    trainer = elastic_trainer(
        lambda most: usable_workers(64, most),
        lambda: given["scaling_policy"].resizable,
        train_loop_per_worker=print,
        scaling_config=ScalingConfig(num_workers=(1, 4)),  # type: ignore[arg-type]
    )
    trainer._initialize_and_run_controller()  # `fit` would first start a Ray
    made = given["scaling_policy"]
    made.nodes, made.dead, made.draining, made.resizable = "abcd", "", {}, True
    made._maybe_send_resource_request = lambda: None
    made._get_reserved_resources = lambda: {node: {"CPU": 1.0} for node in made.nodes}
    monkeypatch.setattr(state.state, "get_draining_nodes", lambda: made.draining)
    known = [{"NodeID": node, "Alive": True} for node in "abcd"]
    monkeypatch.setattr(
        ray, "nodes", lambda: [{**n, "Alive": n["NodeID"] not in made.dead} for n in known]
    )
    return made


@pytest.mark.parametrize(
    ("nodes", "dead", "draining", "expected"),
    [("abcd", "", "", 4), ("abc", "", "", 2), ("abcd", "a", "", 2), ("abcd", "a", "bc", 1)],
)
def test_workers_divide_the_batch_and_start_on_nodes_that_stay(
    policy: Any, nodes: str, dead: str, draining: str, expected: int
) -> None:
    policy.nodes, policy.dead, policy.draining = nodes, dead, dict.fromkeys(draining, 0)
    decision = policy.make_decision_for_non_running_worker_group()
    assert decision.num_workers == expected


def test_without_a_node_no_worker_starts(policy: Any) -> None:
    policy.dead = "abcd"
    assert not hasattr(policy.make_decision_for_non_running_worker_group(), "num_workers")


def test_a_running_group_is_resized_after_its_checkpoint(policy: Any) -> None:
    """Train asks for a new size once a minute; the decision waits until the trial has saved."""
    group = SimpleNamespace(start_time=float("-inf"), num_workers=2)

    def size() -> int | None:
        decision = policy.make_decision_for_running_worker_group(group, None)
        return getattr(decision, "num_workers", None)

    policy.resizable = False
    assert [size(), size()] == [None, None]
    policy.resizable = True
    assert size() == 4
    assert size() is None, "the next minute has not come"


def test_a_worker_callback_acts_in_the_process_that_it_is_sent_to(tmp_path: Path) -> None:
    made = worker_callback(partial(Path.touch, tmp_path / "acted"))
    sent = cloudpickle.loads(cloudpickle.dumps(made))
    assert isinstance(sent, WorkerCallback), "Train would not call it"
    sent.after_init_train_context()
    assert (tmp_path / "acted").exists()
