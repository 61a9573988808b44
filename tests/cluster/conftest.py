"""A user with an empty home directory, and a cluster of their own to submit jobs to."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster.try_autoscaling import free_ports
from tests.data.object_store import ObjectStore, object_store
from tests.processes import begin, kill
from tests.waiting import status_of, wait_until


def environment_of(home: Path) -> dict[str, str]:
    """Returns the environment of a user with this home folder, Ray's tokens as they come."""
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_", "OMP_"))}
    path = f"{Path(sys.executable).parent}:{quiet['PATH']}"
    return {**quiet, "HOME": str(home), "PATH": path, "RAY_USAGE_STATS_ENABLED": "0"}


def make_token(environment: dict[str, str]) -> None:
    """Makes a token in the home folder of an environment."""
    command = ["ray", "get-auth-token", "--generate"]
    subprocess.run(command, env=environment, check=True, capture_output=True)


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with an empty home folder."""
    return environment_of(tmp_path)


@contextmanager
def head_of(home: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Yields a function that starts a head with two CPUs and returns its dashboard's address."""
    # Those of agent and clients, too: another Ray of this machine has their usual ones.
    port, dashboard, agent, client = free_ports(4)
    # A job's driver asks the cluster that was started last below this folder, which is to be ours.
    # The path is short, for sockets lie in it.
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    started: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        command = [
            "ray", "start", "--head", "--block", "--num-cpus", "2", "--port", str(port),
            "--dashboard-port", str(dashboard), "--ray-client-server-port", str(client),
            "--dashboard-agent-listen-port", str(agent), "--temp-dir", str(folder),
            "--disable-usage-stats",
        ]  # fmt: skip
        started.append(begin(command, folder / "head.log", env={**home, "RAY_AUTH_MODE": "token"}))
        address = f"http://127.0.0.1:{dashboard}"
        wait_until(lambda: status_of(f"{address}/api/version") == 401, "head", process=started[-1])
        return address

    try:
        yield start
    finally:  # also where the body fails, or the head would stay
        ended = [process.poll() for process in started]
        for process in started:
            # Asked kindly it takes half a minute, waiting for agents that wait for it.
            kill(process)
        said = "".join(path.read_text() for path in folder.glob("head.log"))
        shutil.rmtree(folder, ignore_errors=True)
        assert ended in ([], [None]), f"the head ended by itself: {said[-5000:]}"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """Yields an object store that children of this process find, too."""
    with object_store(monkeypatch) as store:
        yield store
