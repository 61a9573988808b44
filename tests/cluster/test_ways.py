"""Ways to start a sweep (script, command, job) and their equal plans."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mtcon_ray.cli.main import program
from mtcon_ray.results import load_sweep
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.soak, pytest.mark.ray, pytest.mark.mlflow]

REPOSITORY = Path(__file__).parents[2]
SMALL = [
    "data.num_items=300", "views.size=16", "model.encoder.width=8", "train.epochs=2",
    "train.batch_size=32", "evaluate.bootstrap=50",
    "search.space.method.temperature={grid: [0.1, 0.5]}", "search.max_concurrent=1",
]  # fmt: skip


def small() -> list[str]:
    return [word for value in SMALL for word in ("--set", value)]


def finished(
    command: list[str], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip


def submit(job: list[str], environment: dict[str, str], folder: Path) -> str:
    """Returns a job's output; retries, because a new head may not accept jobs yet."""
    tries: list[subprocess.CompletedProcess[str]] = []

    def is_taken() -> bool:
        tries.append(finished(job, environment, folder))
        return "No available agent" not in tries[-1].stderr

    wait_until(is_taken, "agent for the job", pause=2)
    done = tries[-1]
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def without_places(plan: str) -> dict[str, Any]:
    return {k: v for k, v in json.loads(plan).items() if k not in ("root", "cluster", "name")}


def configurations(folder: Path) -> list[Any]:
    return [(t.name, t.params, t.status) for t in load_sweep(folder).trials]


def test_script_program_and_job_give_the_same_plan_and_configurations(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    """The local sweep runs first: it creates a token, which the head then requires.

    Ray's warning about the token must be in its log file, not on the terminal, which may show the
    progress table.
    """
    copy = tmp_path / "checkout"
    shutil.copytree(REPOSITORY / "experiments", copy / "experiments")
    shutil.copytree(REPOSITORY / "mtcon_ray", copy / "mtcon_ray")
    script = [sys.executable, "experiments/sweep_temperature.py", "--name", "a", *small()]
    done = finished(script, {**home, "PYTHONPATH": str(copy)}, copy)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "authentication" not in done.stdout + done.stderr
    ray_log = tmp_path / "mtcon-ray" / "sweeps" / "a" / "log" / "ray.log"
    assert "WARNING ray._private.authentication" in ray_log.read_text("utf-8")
    spec = str(copy / "experiments" / "temperature.yaml")
    told = CliRunner().invoke(program, ["plan", spec, "--json", "--root", str(tmp_path), *small()])
    assert told.exit_code == 0, told.output
    planned = without_places(told.stdout)
    address = head()
    job = ["ray", "job", "submit", "--address", address, "--working-dir", ".", "--",
           "python", "experiments/sweep_temperature.py", "--name", "c", *small()]  # fmt: skip
    refused = finished(job, home, copy)
    assert refused.returncode != 0
    assert "token" in refused.stdout + refused.stderr
    printed = submit(job, {**home, "RAY_AUTH_MODE": "token"}, copy)
    assert "winner: trial-" in printed
    sweeps = tmp_path / "mtcon-ray" / "sweeps"
    for name in ("a", "c"):
        assert without_places((sweeps / name / "plan.json").read_text()) == planned
    assert configurations(sweeps / "a") == configurations(sweeps / "c")
