"""Failed trials of a sweep are trained again, on a real local Ray with a real MLflow."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep
from tests.sweep.small_sweeps import TINY, failing_steps, logged
from tests.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.soak]


def test_failed_trials_are_trained_again_in_the_runs_that_they_had(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec_file(search={**TINY["search"], "max_failures": 0})
    where = "run.step > 12 and run.spec.method.temperature == 0.1"
    with monkeypatch.context() as broken:
        broken.setenv("PYTHONPATH", failing_steps(tmp_path, where, "KeyError('kernel')"))
        first = run_sweep(load_spec(path), root=root, callbacks=Callbacks())
    assert [t.status for t in first.trials] == ["FINISHED", "FAILED", "FINISHED"]
    assert 0 < first.trials[1].last_epoch < 4
    runs = {run.info.run_name: run.info.run_id for run in logged(root, first.folder)["children"]}
    words = [sys.executable, "-m", "mtcon_ray", "sweep", str(path), "--root", str(root),
             "--name", first.name, "--retry-failed"]  # fmt: skip
    second = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "trained again: trial-0001\n" in second.stdout
    trials = load_sweep(first.folder).trials
    assert [t.status for t in trials] == ["FINISHED"] * 3
    seen = logged(root, first.folder)
    assert {run.info.run_name: run.info.run_id for run in seen["children"]} == runs
    assert set(seen["statuses"].values()) == {"FINISHED"}
    assert all(sorted(steps) == [1, 2, 3, 4] for steps in seen["steps"].values())
    (again,) = (r for r in seen["children"] if r.info.run_name == "trial-0001")
    assert "mtcon.reason" not in again.data.tags
