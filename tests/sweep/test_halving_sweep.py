"""Synchronous halving on a real local Ray: concurrency does not change which trials continue."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep
from tests import specs
from tests.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.soak]

SPEC: dict[str, Any] = {
    **specs.SHORT,
    "name": "halved",
    "train": {"epochs": 6, "batch_size": 32, "warmup_epochs": 1, "checkpoint_seconds": 0},
    "evaluate": {"bootstrap": 100},
    "tracking": {},
    "search": {
        "space": {"method.temperature": {"grid": [0.05, 0.1, 0.3, 0.7]}},
        "sampler": "grid",
        "scheduler": {"name": "halving"},
    },
}


LOADS = ("images_per_second", "system/")  # beginnings of metrics that never repeat


def curves(results: SweepResults) -> Any:
    return [
        (t.status, [(e, {k: v for k, v in m.items() if not k.startswith(LOADS)})
                    for e, m in t.reports])
        for t in results.trials
    ]  # fmt: skip


def test_killed_and_resumed_it_trains_what_it_would_have_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    folder = sweep_folder(tmp_path / "cut", "cut")
    command = [sys.executable, "-m", "mtcon_ray", "sweep", str(path), "--root",
               str(tmp_path / "cut"), "--name", "cut"]  # fmt: skip
    first = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    wait_until(
        lambda: (folder / "spec.yaml").exists() and _two_wait(folder), "two trials at a rung",
        process=first, told=lambda: first.communicate()[0], pause=0.02,
    )  # fmt: skip
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    second = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout + second.stderr

    one = load_spec(path, ("search.max_concurrent=1",))
    uncut = run_sweep(one, root=tmp_path / "uncut", callbacks=Callbacks())
    assert sorted(t.last_epoch for t in uncut.trials) == [2, 2, 2, 6]
    assert uncut.plan is not None
    assert sum(t.last_epoch for t in uncut.trials) == uncut.plan.epochs_total
    assert uncut.winner is not None
    assert curves(load_sweep(folder)) == curves(uncut)


def _two_wait(folder: Path) -> bool:
    return sum(t.last_epoch >= 2 for t in load_sweep(folder).trials) >= 2
