"""Private interfaces of Ray Tune and Ray Train: elastic trials, callbacks of workers."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import cloudpickle
from ray._private import state
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.execution.callback import WorkerCallback

from mtcon_ray.sweep.distributed_trial import usable_workers
from mtcon_ray.sweep.tune_private import elastic_trainer, worker_callback


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
