"""Sweeps on a full disk, and after a failed start of Ray."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.errors import MtconError
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.driver import run_sweep
from tests.sweep.small_sweeps import command, epochs_of, logged, wait_for
from tests.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mounts a file system of 12 MB, for which the tests must run as root."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small disk must be mounted, got: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.soak
def test_a_full_disk_ends_the_sweep_and_room_lets_it_go_on(
    tmp_path: Path, root: Path, small_disk: Path, spec_file: Callable[..., Path]
) -> None:
    """MLflow's database is on another disk, like a server's.

    Before the resume a checkpoint is damaged.
    """
    path = spec_file(
        train={"epochs": 12, "batch_size": 32}, tracking={"uri": f"sqlite:///{root}/mlflow.db"}
    )
    folder = sweep_folder(small_disk, "cut")
    filler = small_disk / "filler"
    process = command(path, small_disk)
    wait_for(lambda: len(epochs_of(folder, "trial-0000")) >= 2, "two epochs", process)
    with filler.open("wb") as file, suppress(OSError):
        while os.write(file.fileno(), bytes(1 << 12)):
            pass
    printed = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 1, printed
    assert re.search(
        rf"error: {folder}/\S+ must be writable, got .*\d MB free on its disk", printed
    )
    assert "--name cut --resume" in printed
    assert "Traceback" not in printed
    assert "--- Logging error" not in printed
    seen = logged(root, folder)
    assert seen["parent"].info.status == "KILLED"
    assert "RUNNING" not in seen["statuses"].values()

    filler.unlink()
    (started,) = {p.parent for p in folder.glob("checkpoints/*/last.pt")}
    (started / "last.pt").write_bytes(bytes(5000))
    again = command(path, small_disk, "--resume")
    printed = again.communicate(timeout=PATIENCE_SECONDS)[0]
    assert again.returncode == 0, printed
    assert f"{started.name}: checkpoint {started}/last.pt must be a whole file" in printed
    results = load_sweep(folder)
    assert [t.status for t in results.trials] == ["FINISHED"] * 3
    seen = logged(root, folder)
    for trial in results.trials:
        assert epochs_of(folder, trial.name) == list(range(1, 13))
        assert sorted(seen["steps"][trial.name]) == list(range(1, 13))
        assert sorted(os.listdir(folder / "checkpoints" / trial.name)) == [
            "model.pt",
            "predictions.npz",
        ]
    assert set(seen["statuses"].values()) == {"FINISHED"}


def test_a_ray_that_does_not_start_leaves_no_sweep(
    tmp_path: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray fails if its folder makes the names of its sockets too long."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    path = spec_file(tracking={"offline": True})
    with pytest.raises(MtconError, match="must have a path short enough"):
        run_sweep(load_spec(path), root=tmp_path / "root", callbacks=Callbacks(), name="mine")
    assert not sweep_folder(tmp_path / "root", "mine").exists()
