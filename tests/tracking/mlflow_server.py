"""A real `mlflow server` on loopback that can be killed and restarted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from cluster.try_autoscaling import free_ports
from mtcon_ray.tracking.mlflow_server import quiet_environment
from tests.waiting import answers, wait_until


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
        environment = {**os.environ, **quiet_environment()}
        environment["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
        with (self.root / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mlflow", "server", store, artifacts, *place],
                cwd=self.root, env=environment, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        wait_until(
            lambda: answers(f"{self.uri}/health"), "MLflow",
            process=self._process, told=(self.root / "server.log").read_text,
        )  # fmt: skip

    def kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
