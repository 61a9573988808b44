"""Whole sweeps that share one Ray, since each start takes ten seconds."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import checkpoint_folder, kept_model, mlflow_artifacts
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.ray_private import MEMORY_HINT, retry_memory_kills
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.on_ray import Watch
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.training.checkpoint import load
from tests.sweep.small_sweeps import TINY, epochs_of, logged

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.usefixtures("held_ray")]


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
    search = {
        **TINY["search"], "scheduler": {"name": "asha", "grace": 0.5}, "max_concurrent": 2,
    }  # fmt: skip
    results = sweep(spec_file(search=search, storage={"keep": 1}), root)
    assert Starting.most == 2, "processes must start beside each other"
    assert dict(os.environ) == before
    assert results.winner is not None
    assert results.winner.full_budget
    last = results.winner.reports[-1][1]
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
    assert parent.data.tags["mtcon.winner"] == results.winner.name
    settings, scores = parent.data.params, parent.data.metrics
    assert (settings["method.name"], settings["train.epochs"]) == ("mtcon", "4")
    assert "method.temperature" not in settings, "it is searched"
    assert scores["val/accuracy"] == pytest.approx(results.winner.value)
    assert scores["test/accuracy/shape"] == last["test/accuracy/shape"]
    assert "loss" not in scores
    models = results.folder.glob("checkpoints/*/model.pt")
    assert [path.parent.name for path in models] == [results.winner.name]
    (winner,) = [r for r in seen["children"] if r.info.run_name == results.winner.name]
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
    search = {**TINY["search"], "scheduler": "none", "max_concurrent": 1, "max_failures": 1}
    results = sweep(spec_file(search=search), root)
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
    search = {**TINY["search"], "scheduler": "none", "max_concurrent": 1, "max_failures": 1}
    results = sweep(spec_file(search=search), root)
    first, *others = results.trials
    assert first.status == Status.FAILED
    assert first.reason is not None
    assert first.reason.startswith(f"1 worker(s) were killed; {MEMORY_HINT}")
    assert [(t.status, t.last_epoch) for t in others] == [(Status.FINISHED, 4)] * len(others)
    assert (tmp_path / "trial-0001").exists()


@pytest.mark.usefixtures("undrawn")
def test_one_trial_at_a_time_repeats_exactly_whatever_the_test_labels_say(
    tmp_path: Path, photos: Path
) -> None:
    """Also whatever the held-out labels say, of all splits."""
    import pandas as pd

    table = pd.read_csv(photos / "fashion_shoes" / "labels.csv", dtype=str, keep_default_na=False)
    table = table.groupby("split").head(400)
    spec = {
        **TINY,
        "train": {"epochs": 2, "batch_size": 64},
        "evaluate": {"bootstrap": 100},
        "tracking": {"offline": True},
        "search": {
            "space": {"method.temperature": {"loguniform": [0.03, 1]}},
            "num_trials": 4,
            "max_concurrent": 1,
            "scheduler": {"name": "asha", "grace": 0.5},
        },
    }
    true, corrupt = table, table.copy()
    test = corrupt["split"] == "test"
    for task in ("category", "gender"):
        corrupt.loc[test, task] = corrupt.loc[test, task].to_numpy()[::-1]
    # With missing ones and a new class, so known items, classes and counts differ too.
    brand = corrupt["brand"].to_numpy()[::-1].copy()
    brand[::3], brand[1::3] = "", "invented"
    corrupt["brand"] = brand
    outcomes, scores, networks = [], [], []
    for variant, labels in (("true", true), ("corrupt", corrupt)):
        labels.to_csv(tmp_path / f"{variant}.csv", index=False)
        data = {
            "kind": "table", "csv": str(tmp_path / f"{variant}.csv"),
            "images": str(photos / "fashion_shoes" / "images.tar.gz"),
            "tasks": ["category", "gender"], "held_out": ["brand"], "held_out_top_k": 5,
        }  # fmt: skip
        path = tmp_path / f"{variant}.yaml"
        path.write_text(yaml.safe_dump({**spec, "data": data}))
        results = sweep(path, tmp_path / variant)
        history = results.history()
        chosen = history.columns[history.columns.str.match("trial|epoch|loss|val")]
        outcomes.append((history[chosen], [(t.params, t.status) for t in results.trials]))
        winner = results.required_winner()
        scores.append(winner.last_metrics)
        kept = kept_model(checkpoint_folder(results.folder, winner.name))
        networks.append({name: value.tolist() for name, value in load(kept)["network"].items()})
    pd.testing.assert_frame_equal(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]
    assert networks[0] == networks[1]
    for name in ("test/accuracy/category", "test/accuracy/gender", "heldout/accuracy/brand"):
        assert scores[0][name] != scores[1][name], "the evaluation reads the labels"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "temperatures",
    [[0.5], pytest.param([0.1, 0.5], marks=pytest.mark.soak)],  # a trial starts nine processes
)
def test_trials_of_two_workers_fit_two_cpus_and_leave_nothing_behind(
    temperatures: list[float], root: Path, spec_file: Callable[..., Path]
) -> None:
    """A trial of two workers needs both CPUs, so the second one starts when the first has ended."""
    search = {
        "sampler": "grid",
        "space": {"method.temperature": {"grid": temperatures}},
        "scheduler": {"name": "asha", "grace": 0.5},
    }
    gang = sweep(spec_file(search=search, resources={"workers": 2}), root)
    assert gang.plan is not None
    assert gang.plan.concurrency == 1
    assert gang.winner is not None
    statuses = [t.status for t in gang.trials]
    assert set(statuses) <= {"FINISHED", "PRUNED"}
    assert len(statuses) == len(temperatures)
    for trial in gang.trials:
        assert epochs_of(gang.folder, trial.name) == list(range(1, trial.last_epoch + 1))
    plan = json.loads((gang.folder / "plan.json").read_text())
    assert plan["cpus_per_trial"] == 2
