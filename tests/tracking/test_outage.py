"""A real MLflow server that is killed and comes back while a sweep is running."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtcon_ray.errors import TrackingError
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.tracking.server import check_server, quiet_environment

if TYPE_CHECKING:
    from tests.tracking.conftest import Sweep

pytestmark = [
    pytest.mark.mlflow,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

SECONDS = 300  # to start, or to drain, on a machine that is very busy


class Server:
    """`mlflow server` on loopback, which can be killed with all its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        store = f"--backend-store-uri=sqlite:///{self.root}/mlflow.db"
        artifacts = f"--artifacts-destination={self.root}/server-artifacts"
        place = [f"--port={self.port}", "--host=127.0.0.1", "--workers=1"]
        with (self.root / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", store, artifacts, *place],
                cwd=self.root,
                env={
                    **os.environ,
                    **quiet_environment(),
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return check_server(self.uri)
            except TrackingError:
                assert time.monotonic() < deadline, (self.root / "server.log").read_text()
                time.sleep(0.2)

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    server = Server(root)
    yield server
    server.kill()


def test_server_killed_and_restarted_in_mid_sweep(server: Server, sweep: "Sweep") -> None:
    """Training is never held up; nothing is lost, no step is there twice, statuses are true."""
    server.start()
    parent = sweep.begin()
    report = sweep.folder / "report.html"
    report.write_text("report")
    first = sweep.begin("trial-0000")
    sender = Sender(sweep.folder, server.uri, sweep.experiment)
    sender.start()
    for epoch in range(1, 4):
        first.append_report(epoch, {"loss": 1.0, "lr": 0.1})
    assert sender.drain(SECONDS)
    ids = sender.run_ids()

    for epoch in range(4, 7):  # the kill falls between these and the next
        first.append_report(epoch, {"loss": 1.0, "lr": 0.1})
    server.kill()
    begin = time.monotonic()
    first.append("end", status="KILLED", tags={"mtcon.pruned": "true"})
    second = sweep.begin("trial-0001")
    for epoch in range(1, 6):
        second.append_report(epoch, {"loss": float("nan"), "lr": 0.1})
    parent.append("artifact", path=str(report), to="report")
    assert not sender.drain(0.5)
    assert sender.mark_killed() == 0
    assert sender.pending() >= 8
    assert time.monotonic() - begin < 10
    assert sender.last_error is not None
    assert "Connection refused" in sender.last_error

    server.start()
    second.append("end", status="FINISHED", tags={})
    parent.append("end", status="FINISHED", tags={})
    assert sender.close(SECONDS) == 0, sender.last_error
    assert sender.refused == []
    sweep.uri = server.uri
    assert sweep.steps("trial-0000") == [1, 2, 3, 4, 5, 6]
    assert sweep.steps("trial-0001") == [1, 2, 3, 4, 5]
    assert sweep.run("trial-0000").info.run_id == ids["trial-0000"]
    assert sweep.run("trial-0000").info.status == "KILLED"
    assert sweep.run("trial-0000").data.tags["mtcon.pruned"] == "true"
    assert sweep.run("trial-0001").info.status == "FINISHED"
    assert sweep.run("trial-0001").data.tags["mlflow.parentRunId"] == ids["parent"]
    assert sweep.run().info.status == "FINISHED"
    stored = list((server.root / "server-artifacts").rglob("report/report.html"))
    assert len(stored) == 1
