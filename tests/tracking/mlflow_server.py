"""A real `mlflow server` on loopback that can be killed and restarted."""

import os
import subprocess
import sys
from pathlib import Path

from cluster.try_autoscaling import free_ports
from mtcon_ray.tracking.mlflow_server import quiet_environment
from tests.processes import begin, kill
from tests.waiting import status_of, wait_until


class Server:
    """`mlflow server` on loopback; `kill` ends all its processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (self.port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        store = f"--backend-store-uri=sqlite:///{self.root}/mlflow.db"
        artifacts = f"--artifacts-destination={self.root}/server-artifacts"
        place = [f"--port={self.port}", "--host=127.0.0.1", "--workers=1"]
        fewer = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # processes
        environment = {**os.environ, **quiet_environment(), **fewer}
        command = [sys.executable, "-m", "mlflow", "server", store, artifacts, *place]
        log, page = self.root / "server.log", f"{self.uri}/health"
        self._process = server = begin(command, log, cwd=self.root, env=environment)
        wait_until(lambda: status_of(page) == 200, "MLflow", process=server, told=log.read_text)

    def kill(self) -> None:
        if self._process is not None:
            kill(self._process)
            self._process = None
