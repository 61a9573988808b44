"""Head and worker of ray.sh as plain processes: one cluster that runs work and requires a token."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cluster.try_autoscaling import free_ports
from tests.waiting import PATIENCE_SECONDS, answers, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.soak]

DOCKER = Path(__file__).parents[2] / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
# Prints the CPUs of the node on which a task ran: the worker's, since the head has none.
WORK = """
import ray
ray.init(log_to_driver=False, logging_level="ERROR")

@ray.remote(num_cpus=1)
def here():
    return ray.get_runtime_context().get_node_id()

cpus = {n["NodeID"]: n["Resources"].get("CPU", 0) for n in ray.nodes() if n["Alive"]}
print("cpus", sorted(cpus.values()), "at", cpus[ray.get(here.remote(), timeout=60)])
"""


class Nodes:
    """A head and a worker with their own folder and ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.dashboard, self.clients, *agents = free_ports(5)
        self.agents = dict(zip(("head", "worker"), agents, strict=True))
        token = folder / "token"
        token.write_text("0123456789abcdef" * 3)
        token.chmod(0o600)
        own = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_"))}
        self.environment = {
            **own,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_HEAD": f"127.0.0.1:{self.port}",
        }

    def start(self, role: str) -> subprocess.Popen[bytes]:
        """Starts one node by the script."""
        places = {
            "head": [f"--port={self.port}", f"--dashboard-port={self.dashboard}",
                     "--dashboard-host=127.0.0.1",
                     f"--ray-client-server-port={self.clients}", f"--temp-dir={self.folder}/r"],
            "worker": ["--num-cpus=1"],
        }  # fmt: skip
        with (self.folder / f"{role}.log").open("wb") as log:
            return subprocess.Popen(
                [DOCKER / "ray.sh", role, "--node-ip-address=127.0.0.1", *places[role],
                 f"--dashboard-agent-listen-port={self.agents[role]}"],
                env=self.environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        """Runs a client of the cluster; returns exit code and output."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, cwd=self.folder,
            env={**self.environment, "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0",
                 "RAY_ADDRESS": self.environment["RAY_HEAD"], **variables},
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    """Starts both nodes and waits until they are healthy."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="mt", dir="/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        nodes = Nodes(folder)
        for role in ("head", "worker"):
            process = nodes.start(role)
            stack.callback(process.wait, PATIENCE_SECONDS)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            wait_for_health(nodes, role, process)
        yield nodes


def wait_for_health(nodes: Nodes, role: str, process: subprocess.Popen[bytes]) -> None:
    """Sends the request of the images' health check, which has no token."""
    [path] = re.findall(r"http://127\.0\.0\.1:52365(/\S+?)'", DOCKERFILE)
    url = f"http://127.0.0.1:{nodes.agents[role]}{path}"
    log = nodes.folder / f"{role}.log"
    wait_until(lambda: answers(url), f"healthy {role}", process=process, told=log.read_text)


def test_a_worker_joins_the_head_and_takes_its_work(nodes: Nodes) -> None:
    code, said = nodes.run(sys.executable, "-c", WORK)
    assert code == 0, said
    assert "cpus [0, 1.0] at 1.0" in said
    dashboard = {"RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{nodes.dashboard}"}
    assert nodes.run("ray", "job", "list", **dashboard)[0] == 0
    code, said = nodes.run("ray", "job", "list", **dashboard, RAY_AUTH_TOKEN="0" * 48)
    assert code != 0
    assert "token" in said
