"""Secrets of the environment appear in nothing that a sweep writes or starts."""

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest
import yaml

from tests.cluster.user import SPEC
from tests.data.object_store import ObjectStore
from tests.processes import REPOSITORY, begin
from tests.tracking.mlflow_server import Server

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]

CANARY = b"canary-in-the-mine"
NAMES = (
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "RAY_AUTH_TOKEN", "WANDB_API_KEY",
)  # fmt: skip
SECRETS = {name: f"{CANARY.decode()}-{number}" for number, name in enumerate(NAMES)}
SHORT = {"train": {"epochs": 2, "batch_size": 32}, "evaluate": {"bootstrap": 20}, "tracking": {}}
PROXY = f"http://me:{CANARY.decode()}@127.0.0.1:9"
PROXIES = dict.fromkeys(("HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY"), PROXY)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yields a folder with a short path for Ray's sessions, since socket names are limited."""
    with TemporaryDirectory(prefix="mt", dir="/tmp") as folder:
        yield Path(folder)


def files_with_canary(folder: Path) -> list[Path]:
    files = [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    assert files, folder
    return [path for path in files if CANARY in path.read_bytes()]


def test_no_secret_is_written_or_shown(
    tmp_path: Path, home: dict[str, str], server: Server, temporary: Path, bucket: ObjectStore
) -> None:
    """This covers logs, event logs, command lines, the bucket, and files of Ray's dashboard."""
    server.start()
    address = f"127.0.0.1:{server.port}"
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump({**SPEC, **SHORT}))
    uri = f"http://me:{CANARY.decode()}@{address}"
    environment = {
        **home, **bucket.variables, **SECRETS, **PROXIES, "NO_PROXY": "127.0.0.1",
        "MLFLOW_TRACKING_USERNAME": "me",
        "MLFLOW_TRACKING_URI": uri,
        "PYTHONPATH": str(REPOSITORY), "RAY_TMPDIR": str(temporary), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "mtcon_ray", "sweep", "spec.yaml", "--root", "s3://photos/lab"]
    process = begin(command, tmp_path / "output", cwd=tmp_path, env=environment)
    seen: set[str] = set()
    while process.poll() is None:
        seen |= {" ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])}
        time.sleep(0.2)
    output = (tmp_path / "output").read_bytes()
    assert process.returncode == 0, output.decode()
    assert f"http://me:***@{address}".encode() in output
    assert CANARY not in output
    assert any("raylet" in line for line in seen)
    assert not [line for line in seen if CANARY.decode() in line]
    assert (tmp_path / ".cache" / "mtcon-ray").exists()
    assert files_with_canary(tmp_path) == [], "in the home folder, with the server's files"
    names = [name for name in bucket.names() if not name.endswith("/")]
    assert any("/model-" in name for name in names)
    assert [name for name in names if CANARY in bucket.content(name)] == []
    sessions = list(temporary.glob("mtcon-ray-*/ray/session_2*"))
    assert sessions
    assert [p for s in sessions for p in files_with_canary(s)] == []
    assert [p for s in sessions for p in (s / "logs").glob("*.*") if p.stat().st_mode & 0o077] == []
    assert re.search(rb"winner: trial-", output)
