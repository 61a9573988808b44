"""Secrets of the environment appear in nothing that a sweep writes or starts."""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from tests.cluster.user import SPEC
from tests.data.object_store import ObjectStore, object_store
from tests.tracking.mlflow_server import Server

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]

REPOSITORY = Path(__file__).parents[2]
CANARY = b"canary-in-the-mine"
NAMES = (
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN", "RAY_AUTH_TOKEN", "WANDB_API_KEY",
)  # fmt: skip
SECRETS = {name: f"{CANARY.decode()}-{number}" for number, name in enumerate(NAMES)}
BRIEF = {"train": {"epochs": 2, "batch_size": 32}, "evaluate": {"bootstrap": 20}}
PROXIES = {
    name: f"http://me:{CANARY.decode()}@127.0.0.1:9"
    for name in ("HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY")
}


@pytest.fixture
def server(tmp_path: Path, empty_database: Path) -> Iterator[Server]:
    (tmp_path / "mlflow").mkdir()
    shutil.copy(empty_database, tmp_path / "mlflow" / "mlflow.db")
    server = Server(tmp_path / "mlflow")
    server.start()
    yield server
    server.kill()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store(monkeypatch) as store:
        yield store


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yields a folder with a short path for Ray's sessions, since socket names are limited."""
    with TemporaryDirectory(prefix="mt", dir="/tmp") as folder:
        yield Path(folder)


def command_lines() -> set[bytes]:
    """Returns the command lines of all processes of this machine."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.add(path.read_bytes())
    return found


def files_with_canary(folder: Path) -> list[Path]:
    files = [p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()]
    assert files, folder
    return [path for path in files if CANARY in path.read_bytes()]


def test_no_secret_is_written_or_shown(
    tmp_path: Path, home: dict[str, str], server: Server, temporary: Path,
    bucket: ObjectStore,
) -> None:  # fmt: skip
    """This covers logs, event logs, command lines, the bucket, and files of Ray's dashboard."""
    address = f"127.0.0.1:{server.port}"
    (tmp_path / "spec.yaml").write_text(
        yaml.safe_dump({**SPEC, **BRIEF, "tracking": {"offline": False}})
    )
    uri = f"http://me:{CANARY.decode()}@{address}"
    environment = {
        **home, **bucket.variables, **SECRETS, **PROXIES, "NO_PROXY": "127.0.0.1",
        "MLFLOW_TRACKING_USERNAME": "me",
        "MLFLOW_TRACKING_URI": uri,
        "PYTHONPATH": str(REPOSITORY), "RAY_TMPDIR": str(temporary), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with (tmp_path / "output").open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "mtcon_ray", "sweep", "spec.yaml", "--root",
             "s3://photos/lab"],
            cwd=tmp_path, env=environment, stdout=file, stderr=file, start_new_session=True,
        )  # fmt: skip
        seen: set[bytes] = set()
        while process.poll() is None:
            seen |= command_lines()
            time.sleep(0.2)
    output = (tmp_path / "output").read_bytes()
    assert process.returncode == 0, output.decode()
    assert f"http://me:***@{address}".encode() in output
    assert CANARY not in output
    assert any(b"raylet" in line for line in seen)
    assert not [line for line in seen if CANARY in line]
    assert files_with_canary(Path(home["HOME"]) / ".cache" / "mtcon-ray") == []
    names = [name for name in bucket.names() if not name.endswith("/")]
    assert any("/model-" in name for name in names)
    assert [name for name in names if CANARY in bucket.content(name)] == []
    assert files_with_canary(server.root) == []
    sessions = list(temporary.glob("mtcon-ray-*/ray/session_2*"))
    assert sessions
    assert [p for s in sessions for p in files_with_canary(s)] == []
    readable = [p for s in sessions for p in (s / "logs").glob("*.*") if p.stat().st_mode & 0o077]
    assert readable == []
    assert re.search(rb"winner: trial-", output)
