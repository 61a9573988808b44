"""Sweeps as jobs: what is uploaded; a cluster that takes, shows, stops and resumes them."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from mtcon_ray.errors import MtconError, ResourceError
from mtcon_ray.results import load_sweep
from mtcon_ray.sweep.jobs import Jobs, check_upload, check_variables, measure_upload

REPOSITORY = Path(__file__).parents[2]
SPEC = {
    "name": "small",
    "data": {"kind": "drawn", "num_items": 300},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 8}},
    "train": {"epochs": 2, "batch_size": 32},
    "evaluate": {"bootstrap": 20},
    "tracking": {"offline": True},
    "search": {
        "space": {"method.temperature": {"grid": [0.1, 0.5]}},
        "sampler": "grid",
        "scheduler": {"name": "none"},
    },
}


def test_what_is_ignored_is_not_uploaded(tmp_path: Path) -> None:
    for name, size in (("a.py", 10), ("data/big.bin", 1000), ("notes.txt", 20), ("b/c.py", 5)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * size)
    (tmp_path / ".gitignore").write_text("data/\n")
    (tmp_path / ".rayignore").write_text("notes.txt\n")
    upload = measure_upload(tmp_path)
    kept = {".gitignore", ".rayignore", "a.py", "b/c.py"}
    assert {path for path, _ in upload.largest} == kept
    assert upload.num_files == 4
    assert upload.num_bytes == 10 + 5 + 6 + 10
    assert check_upload(tmp_path, limit=31) == upload
    with pytest.raises(
        ResourceError, match=r"at most 3e-05 MB, got 3\.1e-05 MB in 4 files"
    ) as told:
        check_upload(tmp_path, limit=30)
    assert "a.py" in str(told.value)


def test_a_password_is_not_passed_to_a_job() -> None:
    assert check_variables(None) == {}
    plain = "http://mlflow:5000"
    assert check_variables(plain) == {"MLFLOW_TRACKING_URI": plain}
    with pytest.raises(MtconError, match="must hold no password") as told:
        check_variables("postgresql://me:hunter2@host/db")
    assert "hunter2" not in str(told.value)


@pytest.mark.ray
def test_nobody_there_is_said() -> None:
    with pytest.raises(MtconError, match=r"no Ray cluster answers at http://127\.0\.0\.1:9"):
        Jobs("http://127.0.0.1:9")


@pytest.mark.ray
def test_a_sweep_is_submitted_shown_stopped_and_goes_on(
    tmp_path: Path, home: dict[str, str], head: Callable[[], str]
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mtcon_ray").symlink_to(REPOSITORY / "mtcon_ray")
    spec = {**SPEC, "train": {"epochs": 100, "batch_size": 32}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    subprocess.run(
        ["ray", "get-auth-token", "--generate"], env=home, check=True, capture_output=True
    )
    address = head()
    environment = {**home, "RAY_AUTH_MODE": "token", "RAY_API_SERVER_ADDRESS": address}
    sweep = tmp_path / "mtcon-ray" / "sweeps" / "small-1"

    def program(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "mtcon_ray", *arguments],
            env={**environment, "PYTHONPATH": str(REPOSITORY)},
            cwd=folder, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    started = program("submit", "spec.yaml", "--no-follow")
    assert started.returncode == 0, started.stderr
    assert "job small-1-1: " in started.stdout
    assert started.stderr == ""
    deadline = time.monotonic() + 200
    while not (sweep / "checkpoints" / "trial-0000" / "last.pt").exists():
        logs = program("logs", "small-1").stdout
        assert time.monotonic() < deadline, logs
        assert "error" not in logs, logs
        time.sleep(1)
    again = program("submit", "spec.yaml", "--name", "small-1", "--no-follow")
    assert again.returncode == 2
    assert "got job small-1-1 that is; follow it with" in again.stderr
    assert "small-1-1  small-1        1  running" in program("jobs").stdout

    assert "stopping small-1-1" in program("stop", "small-1").stdout
    program("logs", "small-1", "-f")
    (stored,) = {t.status for t in load_sweep(sweep).trials} - {"FINISHED"}
    assert stored == "INTERRUPTED"
    assert "stopped by SIGTERM" in program("logs", "small-1").stdout

    done = program("submit", "spec.yaml", "--name", "small-1")
    assert "job small-1-2: " in done.stdout
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "winner: trial-" in done.stdout
    assert {t.status for t in load_sweep(sweep).trials} == {"FINISHED"}
    assert os.stat(sweep).st_mode & 0o077 == 0
