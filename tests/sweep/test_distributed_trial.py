"""Trials of several workers in which one worker raises an error."""

import errno
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from ray.core.generated.common_pb2 import ActorDiedErrorContext  # type: ignore[attr-defined]
from ray.exceptions import ActorDiedError, RayTaskError
from ray.train.v2._internal import exceptions
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError
from ray.tune.experiment import Trial

from mtcon_ray.base.status import Status
from mtcon_ray.records.results import load_sweep
from mtcon_ray.sweep.distributed_trial import PlacementGroupCleanup, RankEnded, _ending_of
from mtcon_ray.sweep.trial import ending
from tests import specs
from tests.processes import run_python
from tests.sweep.small_sweeps import failing_steps

SPEC: dict[str, Any] = {
    **specs.SHORT,
    "name": "pairs",
    "train": {"epochs": 3, "batch_size": 32},
    "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1, 0.5]}}},
    "resources": {"workers": 2},
}

# The process group of the workers, whose collective operations have a limit in seconds.
GLOO = "__import__('torch').distributed.group.WORLD._get_backend(run.device)"
LIMIT = f"(run.folder.parent / 'limit').write_text(str({GLOO}.options._timeout.total_seconds()))"
ONCE = "(run.folder.parent / 'once')"


@pytest.mark.ray
@pytest.mark.soak
def test_an_error_on_one_rank_ends_its_group(tmp_path: Path) -> None:
    """The other rank waits in a collective operation.

    An error of this package fails the first trial at once. The workers of the second trial start
    again after an unknown error.
    """
    path = failing_steps(
        tmp_path,
        f"run.ranks.rank == 1 and run.step == 3 and not {ONCE}.exists() and {LIMIT}",
        f"KeyError({ONCE}.touch()) if run.spec.method.temperature == 0.5 else OutOfMemoryError("
        '"train.batch_size 32 does not fit the device\'s memory")',
    )
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    words = ("sweep", "spec.yaml", "--name", "pairs", "--root", tmp_path / "root")
    done = run_python("-m", "mtcon_ray", *words, cwd=tmp_path, PYTHONPATH=path)
    results = load_sweep(tmp_path / "root" / "sweeps" / "pairs")
    assert [t.status for t in results.trials] == ["FAILED", "FINISHED"]
    reason = "OutOfMemory: train.batch_size 32 does not fit the device's memory"
    assert results.trials[0].reason == reason
    assert f"failed ({reason})" in done.stdout
    assert (results.folder / "checkpoints" / "limit").read_text() == "300.0"
    assert [epoch for epoch, _ in results.trials[1].reports] == [1, 2, 3]
    assert results.plan is not None
    assert results.plan.concurrency == 1, "two workers fit two CPUs once"


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_of_ours_ends_the_trial_at_once(wrapped: bool, tmp_path: Path) -> None:
    """Train passes on the text of an error, or the error."""
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "last.pt"))
    ended = RankEnded(json.dumps(ending(full)))
    text = f"Traceback:\n  f()\nmtcon_ray.sweep.distributed_trial.RankEnded: {ended}\n"
    raised = exceptions.UserExceptionWithTraceback(ended, text) if wrapped else ended
    end = _ending_of(WorkerGroupError("worker 1 failed", {0: KeyError("x"), 1: raised}))
    assert Status(end["outcome"]) is Status.INTERRUPTED
    assert str(tmp_path / "last.pt") in end["halt"]
    assert "No space left on device" in end["halt"]


def lost_worker(**context: Any) -> exceptions.WorkerHealthCheckFailedError:
    died = ActorDiedErrorContext(
        actor_id=bytes(16), error_message="The actor died because its node has died.",
        class_name="RayTrainWorker", pid=4711, node_ip_address="192.0.2.7", **context,
    )  # fmt: skip
    message = "A worker health check failed."
    return exceptions.WorkerHealthCheckFailedError(message, ActorDiedError(died))


LOST = lost_worker()
PREEMPTED = lost_worker(node_death_info={"reason": "AUTOSCALER_DRAIN_PREEMPTED"})
LOST_LINE = (
    "A worker health check failed. The actor died unexpectedly before finishing this task. "
    "The actor died because its node has died."
)
TWO = {1: KeyError("colour"), 0: RuntimeError("closed\n  by gloo")}


@pytest.mark.parametrize(
    ("failures", "reason", "preempted"),
    [
        ({1: LOST}, f"worker 1: {LOST_LINE}", False),
        (TWO, "worker 0: RuntimeError: closed / by gloo; worker 1: KeyError: 'colour'", False),
        ({0: RayTaskError("execute", "  File x\nKeyError: 1", 1)}, "worker 0: KeyError: 1", False),
        ({0: LOST, 1: PREEMPTED}, f"worker 0: {LOST_LINE}; worker 1: {LOST_LINE}", True),
    ],
    ids=["lost", "two-errors", "task", "preempted"],
)
def test_line_on_lost_workers(failures: dict[int, Exception], reason: str, preempted: bool) -> None:
    end = _ending_of(WorkerGroupError("[Rank 1 Error Snippet]:\nTraceback", failures))
    assert end == {"lost": reason, "preempted": preempted, "done": True}


def test_workers_that_do_not_start_fail_the_trial() -> None:
    failed = exceptions.WorkerGroupStartupFailedError("no node\nfor two workers")
    end = _ending_of(ControllerError(failed))
    assert end == {"outcome": Status.FAILED, "reason": "no node for two workers", "done": True}


def test_workers_wait_to_begin_and_for_a_lost_node(monkeypatch: pytest.MonkeyPatch) -> None:
    groups, trial = PlacementGroupCleanup(), Trial("none", stub=True)
    assert groups.waits(trial.trial_id)
    groups.on_trial_result(1, [trial], trial, {"placement_group": "ab" * 18})
    table = "mtcon_ray.sweep.distributed_trial.placement_group_table"
    for state in ("RESCHEDULING", "CREATED"):
        monkeypatch.setattr(table, Mock(return_value={"state": state}))
        assert groups.waits(trial.trial_id) == (state == "RESCHEDULING")
