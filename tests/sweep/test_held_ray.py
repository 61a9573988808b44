"""Whole sweeps and the register of their processes, on one Ray, which takes long to start."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import ray
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import ActorDiedError, RayActorError, RayError, UnserializableException
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import MLFLOW_ARTIFACTS
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.connection import connected, sweep_environment
from mtcon_ray.cluster.ray_private import MEMORY_HINT, count_errors_as_losses
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.on_ray import Watch
from mtcon_ray.sweep.register import NAMESPACE, Line, Register
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.tracking.mlflow_server import own_database
from tests.some import some
from tests.sweep.small_sweeps import TINY
from tests.tracking.conftest import Sweep
from tests.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.usefixtures("held_ray")]


@pytest.fixture(scope="module")
def held_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Holds a local Ray for all tests: its start takes ten seconds."""
    with connected(tmp_path_factory.mktemp("ray") / "ray.log", sweep_environment(1)):
        yield


def sweep(path: Path, root: Path, **options: Any) -> SweepResults:
    return run_sweep(load_spec(path), root=root, callbacks=Callbacks(), **options)


class Starting(Watch):
    """The sweep's callback, which also counts the trials that wait for their process together."""

    most = 0

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        super().on_step_begin(iteration, trials, **info)
        Starting.most = max(Starting.most, sum(t.status == Trial.PENDING for t in trials))


@pytest.mark.no_cover
def test_a_sweep_ends_with_a_winner_a_report_and_nested_runs(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "Watch", Starting)
    before = dict(os.environ)
    search = {**TINY["search"], "scheduler": {"name": "asha", "grace": 0.5}, "max_concurrent": 2}
    results = sweep(spec_file(search=search, storage={"keep": 1}), root)
    assert Starting.most == 2, "processes must start beside each other"
    assert dict(os.environ) == before
    best = results.required_winner()
    last = best.last_metrics
    assert {"test/accuracy/shape", "test/accuracy_std/colour", "heldout/accuracy/tilt"} <= set(last)
    assert last["system/process_memory_megabytes"] > 0
    assert (results.folder / "report" / "index.html").exists()

    sent = Sweep(results.folder, own_database(root))
    sent.experiment = "mtcon-ray"
    parent = sent.run()
    for trial in results.trials:
        finished, run = trial.status == "FINISHED", sent.run(trial.name)
        assert run.info.status == ("FINISHED" if finished else "KILLED")
        assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
        assert sent.steps(trial.name) == [e for e, _ in trial.reports]
        assert finished == (trial.last_epoch == 4)
    assert len(sent.client.search_runs([parent.info.experiment_id])) == 4
    assert (parent.info.status, parent.info.run_name) == ("FINISHED", "tiny-1")
    assert parent.data.tags["mtcon.winner"] == best.name
    settings, scores = parent.data.params, parent.data.metrics
    assert (settings["method.name"], settings["train.epochs"]) == ("mtcon", "4")
    assert "method.temperature" not in settings, "it is searched"
    assert scores["val/accuracy"] == pytest.approx(best.value)
    for name in ("test/accuracy/shape", "head/map_at_r/shape"):
        assert scores[name] == last[name]
    assert "loss" not in scores
    models = results.folder.glob("checkpoints/*/model.pt")
    assert [path.parent.name for path in models] == [best.name]
    winner = sent.run(best.name)
    assert winner.data.tags["mtcon.device"] == "CPU"
    method = {"method.name": "mtcon", "method.weighting": "learned"}
    temperature = {"method.temperature": str(best.params["method.temperature"])}
    assert winner.data.params == method | temperature
    stored = (root / MLFLOW_ARTIFACTS).rglob("model.pt")
    assert [winner.info.run_id in path.parts for path in stored] == [True]


@pytest.mark.no_cover
@pytest.mark.usefixtures("undrawn")
def test_a_process_that_is_lost_or_that_ray_kills_for_memory_costs_one_try(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray kills the first trial each time. The process that gets the last trial is lost then."""
    lost = tmp_path / "lost"

    class Ended(ReusedTrainable):
        def step(self) -> dict[str, Any]:
            found = super().step()
            if self.config["trial"] == "trial-0000":
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            if not lost.exists():
                lost.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().reset_config(new_config)

    count_errors_as_losses()
    handle = RayActorManager._actor_task_failed

    def for_memory(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        """Ray's memory monitor would have to be made to kill one of these processes alone."""
        if isinstance(exception, RayActorError) and not lost.exists():
            exception = ray.exceptions.OutOfMemoryError("1 worker(s) were killed\nby a policy")
        handle(self, tracked_actor_task, exception)

    monkeypatch.setattr(RayActorManager, "_actor_task_failed", for_memory)
    monkeypatch.setattr(on_ray, "ReusedTrainable", Ended)
    search = {**TINY["search"], "scheduler": "none", "max_failures": 1}
    first, *others = sweep(spec_file(search=search, tracking={"offline": True}), root).trials
    assert first.status == Status.FAILED
    assert some(first.reason).startswith(f"1 worker(s) were killed; {MEMORY_HINT}")
    assert [(t.status, t.last_epoch) for t in others] == [(Status.FINISHED, 4)] * 2
    assert lost.exists()


def test_an_error_that_ray_cannot_read_costs_one_try() -> None:
    """An exception of a plugin may be pickled in the trial and not unpickled in the driver."""
    count_errors_as_losses()
    for text, told in (("Traceback:\n  in a line\nMyError: 1", "MyError: 1"), ("", "RayError")):
        task, error = Mock(), UnserializableException(text) if text else RayError()
        RayActorManager._actor_task_failed(Mock(), task, error)
        (_, found), _ = task._on_error.call_args
        assert isinstance(found, RayActorError)
        assert str(found) == told


class Process:
    """A process of a trial without its training."""

    def begin(self, name: str, trial: str) -> None:
        self.line = Line(name, trial, lambda: None)

    def asked(self) -> bool:
        return self.line()


def test_a_stop_is_heard_and_a_hung_process_is_killed_after_a_restart() -> None:
    found = Register()
    made: Any = ray.remote(num_cpus=0)(Process)
    first, second = processes = [made.remote() for _ in range(2)]
    for number, process in enumerate(processes):
        ray.get(process.begin.remote(found.name, f"trial-000{number}"))
    assert not any(ray.get([p.asked.remote() for p in processes]))

    ray.kill(ray.get_actor(found.name, NAMESPACE), no_restart=False)
    actor: Any = ray.get_actor(found.name, NAMESPACE)
    wait_until(lambda: not ray.get(actor.processes.remote("x")), "it", not_yet=RayActorError)
    time.sleep(1)
    assert not any(ray.get([p.asked.remote() for p in processes])), "no stop was asked"
    ray.get(second.begin.remote(found.name, "trial-0000"))
    ray.get(second.begin.remote(found.name, "trial-0002"))
    time.sleep(1)

    def ended() -> bool:
        """Kills the first process, which registers again at one of its looks."""
        found.end("trial-0000")
        return has_died(first)

    wait_until(ended, "the killed process")
    assert not has_died(second), "it was reused for another trial"
    found.stop()
    wait_until(lambda: ray.get(second.asked.remote()), "the stop")
    found.end()
    wait_until(lambda: has_died(second), "the other process")


def has_died(process: Any) -> bool:
    try:
        ray.get(process.asked.remote(), timeout=5)
    except ActorDiedError:
        return True
    return False
