"""A user with an empty home folder, and a cluster that accepts the user's jobs."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.try_autoscaling import free_ports
from mtcon_ray.places import mlflow_database
from tests.sweep.small_sweeps import TINY
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """Returns a user's environment with an empty home folder and no variables of Ray or MLflow."""
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_", "OMP_"))}
    path = f"{Path(sys.executable).parent}:{quiet['PATH']}"
    return {**quiet, "HOME": str(tmp_path), "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}


def listens(port: int) -> bool:
    """Returns True if the port accepts connections; raises OSError if not."""
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


@pytest.fixture
def head(home: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Returns a function that starts a head with two CPUs and returns its dashboard's address.

    A test may run a local sweep before it starts the head.
    """
    # The ports of agent and Ray Client too: another Ray of this machine may use the default ones.
    port, dashboard, agent, client = free_ports(4)
    # A job's driver connects to the last cluster that was started below this folder, which must be
    # this one. The path must be short because it contains sockets, whose names are limited to 107
    # bytes.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    started: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        environment = {**home, "RAY_AUTH_MODE": "token"}
        with (folder / "head.log").open("w") as log:
            started.append(
                subprocess.Popen(
                    ["ray", "start", "--head", "--block", "--num-cpus", "2", "--port", str(port),
                     "--dashboard-port", str(dashboard), "--ray-client-server-port", str(client),
                     "--dashboard-agent-listen-port", str(agent), "--temp-dir", str(folder),
                     "--disable-usage-stats"],
                    env=environment, stdout=log, stderr=log, start_new_session=True,
                )
            )  # fmt: skip
        wait_until(lambda: listens(dashboard), "head", process=started[-1])
        return f"http://127.0.0.1:{dashboard}"

    yield start
    ended = [process.poll() for process in started]
    for process in started:
        with suppress(ProcessLookupError):
            # After SIGTERM the head waits half a minute for its agents, which in turn wait for the
            # head.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
    said = "".join(path.read_text() for path in folder.glob("head.log"))
    shutil.rmtree(folder, ignore_errors=True)
    assert ended in ([], [None]), f"the head ended by itself: {said[-5000:]}"


@pytest.fixture
def root(tmp_path: Path, empty_database: Path) -> Path:
    """Returns a root with its own database; a copy, since MLflow takes seconds to create one."""
    path = tmp_path / "root"
    path.mkdir()
    shutil.copy(empty_database, mlflow_database(path))
    return path


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}))
        return path

    return write
