"""Whole sweeps that share one Ray, since each start takes ten seconds."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import mlflow_artifacts
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.ray_private import MEMORY_HINT, retry_memory_kills
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.on_ray import Watch
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trainable import ReusedTrainable
from tests.some import some
from tests.sweep.small_sweeps import TINY, epochs_of, logged

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.usefixtures("held_ray")]
ASHA = {"name": "asha", "grace": 0.5}
ONE_LOSS = {**TINY["search"], "scheduler": "none", "max_concurrent": 1, "max_failures": 1}


def sweep(path: Path, root: Path, **options: Any) -> SweepResults:
    return run_sweep(load_spec(path), root=root, callbacks=Callbacks(), **options)


class Starting(Watch):
    """The sweep's callback, which also counts the trials that wait for their process together."""

    most = 0

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        super().on_step_begin(iteration, trials, **info)
        Starting.most = max(Starting.most, sum(t.status == Trial.PENDING for t in trials))


def test_a_sweep_ends_with_a_winner_a_report_and_nested_runs(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "Watch", Starting)
    before = dict(os.environ)
    search = {**TINY["search"], "scheduler": ASHA, "max_concurrent": 2}
    results = sweep(spec_file(search=search, storage={"keep": 1}), root)
    assert Starting.most == 2, "processes must start beside each other"
    assert dict(os.environ) == before
    best = results.required_winner()
    last = best.last_metrics
    assert {"test/accuracy/shape", "test/accuracy_std/colour", "heldout/accuracy/tilt"} <= set(last)
    assert last["system/process_cpu_percentage"] > 0
    assert (results.folder / "report" / "index.html").exists()

    seen = logged(root, results.folder)
    for trial in results.trials:
        finished = trial.status == "FINISHED"
        assert seen["statuses"][trial.name] == ("FINISHED" if finished else "KILLED")
        assert sorted(seen["steps"][trial.name]) == [e for e, _ in trial.reports]
        assert finished == (trial.last_epoch == 4)
    parent = seen["parent"]
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
    (winner,) = [r for r in seen["children"] if r.info.run_name == best.name]
    assert winner.data.tags["mtcon.device"] == "CPU"
    assert list(winner.data.params) == ["method.temperature"]
    stored = mlflow_artifacts(root).rglob("model.pt")
    assert [winner.info.run_id in path.parts for path in stored] == [True]


def test_a_process_that_is_lost_before_it_begins_the_next_trial_costs_one_try(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = tmp_path / "lost"

    class Lost(ReusedTrainable):
        def reset_config(self, new_config: dict[str, Any]) -> bool:
            if not lost.exists():
                lost.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().reset_config(new_config)

    monkeypatch.setattr(on_ray, "ReusedTrainable", Lost)
    results = sweep(spec_file(search=ONE_LOSS), root)
    assert lost.exists()
    assert [trial.status for trial in results.trials] == [Status.FINISHED] * len(results.trials)
    assert [trial.last_epoch for trial in results.trials] == [4] * len(results.trials)


def test_a_process_that_ray_kills_for_memory_costs_one_try(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial is killed each time, the second one once, in their second epochs."""

    class Killed(ReusedTrainable):
        def step(self) -> dict[str, Any]:
            found, trial = super().step(), self.config["trial"]
            if trial == "trial-0000" or (trial == "trial-0001" and not (tmp_path / trial).exists()):
                (tmp_path / trial).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return found

    retry_memory_kills()
    handle = RayActorManager._actor_task_failed

    def for_memory(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        """Ray's memory monitor would have to be made to kill one of these processes alone."""
        if isinstance(exception, RayActorError):
            exception = OutOfMemoryError("1 worker(s) were killed\nby a policy")
        handle(self, tracked_actor_task, exception)

    monkeypatch.setattr(RayActorManager, "_actor_task_failed", for_memory)
    monkeypatch.setattr(on_ray, "ReusedTrainable", Killed)
    results = sweep(spec_file(search=ONE_LOSS), root)
    first, *others = results.trials
    assert first.status == Status.FAILED
    assert some(first.reason).startswith(f"1 worker(s) were killed; {MEMORY_HINT}")
    assert [(t.status, t.last_epoch) for t in others] == [(Status.FINISHED, 4)] * len(others)
    assert (tmp_path / "trial-0001").exists()


@pytest.mark.usefixtures("undrawn")
def test_a_trial_of_two_workers_fits_two_cpus(root: Path, spec_file: Callable[..., Path]) -> None:
    space = {"method.temperature": {"grid": [0.5]}}
    search = {"sampler": "grid", "space": space, "scheduler": ASHA}
    gang = sweep(spec_file(search=search, resources={"workers": 2}), root)
    plan, (trial,) = some(gang.plan), gang.trials
    assert (plan.concurrency, plan.cpus_per_trial) == (1, 2)
    assert gang.winner is trial
    assert epochs_of(gang.folder, trial.name) == [1, 2, 3, 4]
