"""Drivers that mirror their sweep, and one whose root is lost and that goes on elsewhere."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.errors import SweepError
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.restore import restore
from mtcon_ray.sweep.run import run_sweep
from tests.data.object_store import object_store
from tests.sweep.mirrored_sweep import BUCKET, FolderStore, contents, problems
from tests.sweep.small_sweeps import TINY, command, epochs_of, wait_for
from tests.waiting import PATIENCE_SECONDS

URL = BUCKET + "lost"


@pytest.mark.usefixtures("no_ray")
def test_a_driver_mirrors_its_sweep_and_goes_on_from_there(
    tmp_path: Path, store: FolderStore
) -> None:
    """No trial is given out, because the time of the sweep is over at once."""
    raw = {**TINY, "tracking": {"offline": True}, "storage": {"mirror": BUCKET}}
    spec = parse_spec({**raw, "search": {**TINY["search"], "max_hours": 1e-9}})
    root, new = tmp_path / "root", tmp_path / "new"
    run_sweep(spec, root=root, name="lost", callbacks=Callbacks())
    folder = sweep_folder(root, "lost")
    mirrored = {"spec.yaml", "plan.json", "events.jsonl"}
    before = {name: data for name, data in contents(folder).items() if name in mirrored}
    assert before.keys() == mirrored
    shutil.rmtree(root)
    with pytest.raises(SweepError, match=rf"or newer files .*`mtcon-ray resume {URL}`"):
        run_sweep(spec, root=new, name="lost", callbacks=Callbacks())
    assert not sweep_folder(new, "lost").exists()
    there = restore(URL, new)
    assert contents(there) == before
    run_sweep(spec, root=new, name="lost", resume=True, callbacks=Callbacks())
    # The driver's own events are mirrored at its end.
    again = restore(URL, tmp_path / "third")
    assert event_file(again).read_bytes() == event_file(there).read_bytes()
    assert len(event_file(again).read_bytes()) > len(before["events.jsonl"])


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")
def test_a_sweep_whose_root_is_lost_goes_on_elsewhere(
    tmp_path: Path,
    root: Path,
    spec_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = f"sqlite:///{shutil.copy(root / 'mlflow.db', tmp_path)}"
    path = spec_file(
        storage={"mirror": "s3://photos/sweeps/"},
        train={"epochs": 12, "batch_size": 32},
        tracking={"uri": uri},
    )
    new = tmp_path / "new"
    with object_store(monkeypatch):
        process = command(path, root)
        folder = sweep_folder(root, "cut")
        wait_for(lambda: len(epochs_of(folder, "trial-0001")) >= 2, "two epochs", process)
        os.kill(process.pid, signal.SIGTERM)
        printed = process.communicate(timeout=PATIENCE_SECONDS)[0]
        assert process.returncode == 130, printed
        assert "MIRRORED" not in printed
        before = epochs_of(folder, "trial-0001")
        shutil.rmtree(root)
        words = ["resume", "s3://photos/sweeps/cut", "--root", str(new)]
        done = subprocess.run(
            [sys.executable, "-m", "mtcon_ray", *words],
            capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "MIRRORED" not in done.stdout + done.stderr
        assert "REFUSED" not in done.stdout + done.stderr
        there = sweep_folder(new, "cut")
        copied = restore("s3://photos/sweeps/cut", tmp_path / "third")
    assert [trial.status for trial in load_sweep(there).trials] == ["FINISHED"] * 3
    for name in ("trial-0000", "trial-0001", "trial-0002"):
        assert epochs_of(there, name) == list(range(1, 13))
    assert len(before) < 12
    assert problems(there) == problems(copied) == []
    networks = {n: data for n, data in contents(there).items() if n.endswith(".pt")}
    assert networks == {n: data for n, data in contents(copied).items() if n.endswith(".pt")}
