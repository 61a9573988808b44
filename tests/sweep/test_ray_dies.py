"""A sweep whose local Ray does not start, or loses its raylet or GCS."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.errors import MtconError
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep
from tests.processes import run
from tests.sweep.small_sweeps import command, epochs_of
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


@pytest.mark.soak
@pytest.mark.parametrize(("program", "name"), [("raylet", "raylet"), ("gcs_server", "GCS")])
def test_a_killed_part_of_ray_ends_the_sweep_at_once(
    program: str, name: str, root: Path, spec_file: Callable[..., Path]
) -> None:
    path = spec_file(train={"epochs": 200, "batch_size": 32, "checkpoint_seconds": 0})
    folder = sweep_folder(root, "cut")
    driver = command("sweep", path, "--root", root, "--name", "cut")
    wait_until(lambda: len(epochs_of(folder, "trial-0000")) > 1, "epochs", process=driver,
               told=lambda: driver.communicate()[0])  # fmt: skip
    children = run(["pgrep", "-P", str(driver.pid)]).stdout.split()
    (victim,) = (pid for pid in children if Path(f"/proc/{pid}/exe").resolve().name == program)
    os.kill(int(victim), signal.SIGKILL)
    printed, _ = driver.communicate(timeout=PATIENCE_SECONDS)
    assert driver.returncode == 1, printed
    assert printed.splitlines()[-1] == (
        f"error: the {name} of Ray on this machine was ended by signal 9, and no trial can "
        "continue; checkpoints are kept; to continue: repeat the command with --name cut "
        "--resume"
    )
    assert "(raylet)" not in printed, "Ray's raw lines"
    (trial,) = load_sweep(folder).trials
    assert trial.status == "RUNNING", "as after a kill of the driver"
    assert epochs_of(folder, "trial-0000") == list(range(1, trial.last_epoch + 1))
    run(["pgrep", "-f", f"{root}/"], code=1)  # no process trains on without a driver


def test_a_ray_that_does_not_start_leaves_no_sweep(
    tmp_path: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray fails if its folder makes the names of its sockets too long."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    path = spec_file(tracking={"offline": True})
    with pytest.raises(MtconError, match=r"AF_UNIX path length .*; set RAY_TMPDIR to a short path"):
        run_sweep(load_spec(path), root=tmp_path / "root", callbacks=Callbacks(), name="mine")
    assert not sweep_folder(tmp_path / "root", "mine").exists()
