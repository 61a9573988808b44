"""A user with an empty home directory, and a cluster of their own to submit jobs to."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest

from cluster.try_autoscaling import free_ports
from tests.waiting import PATIENCE_SECONDS, wait_until


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


def answers(port: int) -> bool:
    """Returns True if the port answers by HTTP, whatever it says; raises OSError if not.

    A dashboard that starts accepts connections first and drops them.
    """
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    with closing(connection):
        connection.request("GET", "/api/version")
        return connection.getresponse().status < 500


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
        wait_until(lambda: answers(dashboard), "head", process=started[-1])
        return f"http://127.0.0.1:{dashboard}"

    try:
        yield start
    finally:  # also where the body fails, or the head would stay
        ended = [process.poll() for process in started]
        for process in started:
            with suppress(ProcessLookupError):
                # Asked kindly it takes half a minute, waiting for agents that wait for it.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_SECONDS)
        said = "".join(path.read_text() for path in folder.glob("head.log"))
        shutil.rmtree(folder, ignore_errors=True)
        assert ended in ([], [None]), f"the head ended by itself: {said[-5000:]}"


@pytest.fixture
def head(home: dict[str, str]) -> Iterator[Callable[[], str]]:
    """Starts a head with two CPUs when called, so that a test can run a local sweep before."""
    with head_of(home) as start:
        yield start
