"""Requests without a token to every port of a cluster started as in cluster/README.md.

A job that is submitted from a stranger's folder runs none of its modules.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import grpc
import psutil
import pytest

from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.records.results import load_sweep
from tests.cluster.conftest import environment_of, head_of, make_token
from tests.processes import run_python
from tests.security.stranger import Stranger
from tests.waiting import PATIENCE_SECONDS, status_of, wait_until

pytestmark = pytest.mark.ray
# Calls that would reveal, change or run something, for every kind of process.
CALLS = [
    "NodeInfoGcsService/GetAllNodeInfo", "NodeInfoGcsService/RegisterNode",
    "InternalKVGcsService/InternalKVKeys", "JobInfoGcsService/AddJob",
    "ActorInfoGcsService/RegisterActor", "RayletDriver/Init", "RayletDriver/ClusterInfo",
    "NodeManagerService/RequestWorkerLease", "NodeManagerService/ShutdownRaylet",
    "ObjectManagerService/Pull", "ReporterService/GetTraceback", "LogService/StreamLog",
    "CoreWorkerService/PushTask", "CoreWorkerService/KillActor",
]  # fmt: skip
# Processes whose ports are tested; the last two are a job's driver and Ray's workers.
LISTENERS = ("gcs_server", "ray.util.client.server", "raylet/raylet", "dashboard.py",
             "DashboardAgent", "RuntimeEnvAgent", "import ray", "ray::")  # fmt: skip
DRIVER = "python -c 'import ray, time; ray.init(); time.sleep(200)'"


def answer(url: str, token: str | None = None, job: str | None = None) -> int:
    """Returns the HTTP status of a GET, or of the submission of the command line `job`."""
    login = {"Authorization": f"Bearer {token}"} if token else {}
    data = json.dumps({"entrypoint": job}).encode() if job else None
    return status_of(url, data, **login, **{"Content-Type": "application/json"})


# The address of a dashboard, the home folder of its user, and the user's token.
Cluster = tuple[str, Path, str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Yields a cluster that all tests share, because its head takes long to start."""
    home = tmp_path_factory.mktemp("home")
    environment = environment_of(home)
    make_token(environment)
    with head_of(environment) as start:
        yield start(), home, (home / ".ray" / "auth_token").read_text().strip()


def test_a_stranger_starts_nothing(cluster: Cluster, tmp_path: Path) -> None:
    address, home, token = cluster
    ran = tmp_path / "ran"
    for path in ("api/jobs/", "api/version", "nodes?view=summary", "logs", "api/v0/tasks"):
        assert answer(f"{address}/{path}") == 401, path
    assert answer(f"{address}/api/jobs/", job=f"touch {ran}") == 401
    assert answer(f"{address}/api/jobs/", "wrong", job=f"touch {ran}") == 403
    assert answer(f"{address}/api/jobs/", token) == 200, "so that the rest means something"
    command, wrong = ("-m", "mtcon_ray", "list", "--address", address), "a" * 64
    told = run_python(*command, code=2, HOME=str(home), RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=wrong)
    assert "oken" in told.stderr
    assert not ran.exists()


@pytest.mark.slow
def test_no_job_of_a_spec_runs_a_stranger_s_module(cluster: Cluster, tmp_path: Path) -> None:
    address, home, _ = cluster
    stranger = Stranger(tmp_path)
    submit = (str(Path(sys.executable).with_name("mtcon-ray")), "submit", "a.yaml")
    where = ("--root", str(stranger.root), "--address", address)
    stranger.run(*submit, *where, HOME=str(home), RAY_AUTH_MODE="token")
    assert len(load_sweep(sweep_folder(stranger.root, "a-1")).trials) == 1


def listening() -> Iterator[tuple[str, str]]:
    """Yields address and command line of each listening process of the head of these tests."""
    heads = (each for each in psutil.Process().children() if each.name() == "ray")
    for each in (started for head in heads for started in head.children(recursive=True)):
        with suppress(psutil.Error):
            command = " ".join(each.cmdline())
            for connection in each.net_connections("tcp"):
                ip, port = connection.laddr
                ip = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}.get(ip, ip)
                if connection.status == psutil.CONN_LISTEN:
                    yield f"{ip.removeprefix('::ffff:')}:{port}", command


def call(address: str, method: str, token: str | None) -> str:
    """Returns the status of a gRPC call with an empty message."""
    metadata = [("authorization", f"Bearer {token}")] if token else []
    with grpc.insecure_channel(address) as channel:
        asked = channel.unary_unary(f"/ray.rpc.{method}")
        try:
            asked(b"", timeout=PATIENCE_SECONDS, metadata=metadata)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def ports() -> dict[str, str]:
    """Waits until all of the cluster's processes listen; returns command lines by address."""
    found: dict[str, str] = {}

    def missing() -> list[str]:
        found.clear()
        found.update(listening())
        return [name for name in LISTENERS if not any(name in c for c in found.values())]

    wait_until(lambda: not missing(), "port of each process", told=missing)
    return found


def test_every_port_wants_the_token_but_those_of_metrics(cluster: Cluster) -> None:
    """Uses the first calls of a joining node, a driver, a Ray Client and another worker."""
    dashboard, _, token = cluster
    # A new head has no job agent for some seconds.
    wait_until(lambda: answer(f"{dashboard}/api/jobs/", token, job=DRIVER) == 200, "job")
    found, opened = ports(), []
    for address, command in found.items():
        for wrong in (None, "a" * 64):
            statuses = {call(address, method, wrong) for method in CALLS}
            assert statuses <= {"UNAUTHENTICATED", "UNIMPLEMENTED", "UNAVAILABLE"}, command
            if "UNAUTHENTICATED" in statuses:
                continue
            status = answer(f"http://{address}/metrics", wrong)
            if status == 200:
                with urlopen(f"http://{address}/metrics", timeout=PATIENCE_SECONDS) as page:
                    assert page.read(6) == b"# HELP", command
                opened.append(command)
            else:
                assert status == (403 if wrong else 401), command
    assert all(any(n in c for n in ("monitor.py", "dashboard.py", "Agent")) for c in opened)
    (gcs,) = (address for address, command in found.items() if "gcs_server" in command)
    assert call(gcs, CALLS[0], token) == "OK", "so that the rest means something"
