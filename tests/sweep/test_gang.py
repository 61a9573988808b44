"""Trials of several workers of which one has an error that the others do not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from mtcon_ray.results import load_sweep
from tests.sweep.small_sweeps import failing_steps
from tests.waiting import PATIENCE_SECONDS

SPEC = {
    "version": 1,
    "name": "pairs",
    "data": {"kind": "drawn", "num_items": 300},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 8}},
    "train": {"epochs": 3, "batch_size": 32},
    "evaluate": {"bootstrap": 50},
    "search": {
        "sampler": "grid",
        "space": {"method.temperature": {"grid": [0.1, 0.5]}},
        "scheduler": {"name": "none"},
    },
    "resources": {"workers": 2},
    "tracking": {"offline": True},
}


@pytest.mark.ray
def test_an_error_on_one_rank_fails_its_trial_and_the_next_one_runs(tmp_path: Path) -> None:
    """The other rank waits in an exchange; nothing but the end of its group frees it."""
    environment = {
        **os.environ,
        "PYTHONPATH": failing_steps(
            tmp_path,
            "run.ranks.rank == 1 and run.step == 3 and run.spec.method.temperature == 0.1",
            'OutOfMemoryError("train.batch_size 32 must fit the device\'s memory")',
        ),
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    done = subprocess.run(
        [sys.executable, "-m", "mtcon_ray", "sweep", "spec.yaml", "--name", "pairs",
         "--root", str(tmp_path / "root")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = load_sweep(tmp_path / "root" / "sweeps" / "pairs")
    assert [t.status for t in results.trials] == ["FAILED", "FINISHED"]
    reason = "OutOfMemory: train.batch_size 32 must fit the device's memory"
    assert results.trials[0].reason == reason
    assert f"failed ({reason})" in done.stdout
    assert [epoch for epoch, _ in results.trials[1].reports] == [1, 2, 3]
    assert results.plan["concurrency"] == 1, "two workers fit two CPUs once"
