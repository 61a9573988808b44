"""A team's tracking server as plain processes: PostgreSQL, an S3 store and MLflow."""

import os
import subprocess
import sys
from pathlib import Path

from moto.server import ThreadedMotoServer

from cluster.try_autoscaling import free_ports
from tests.processes import begin, kill
from tests.tracking.postgres import Postgres
from tests.waiting import status_of, wait_until

DOCKER = Path(__file__).parents[2] / "docker"
BUCKET = "mlflow"


class Team:
    """The services of compose.yaml without containers: same scripts, secrets from files.

    The S3 store is moto's, in memory. It accepts any key, so rejected keys are not tested.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres = Postgres()
        self.s3 = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        (self.port,) = free_ports(1)
        self.uri = f"http://127.0.0.1:{self.port}"
        self.secrets = folder / "secrets"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Creates the secrets, starts all three services and waits until MLflow answers."""
        subprocess.run([DOCKER / "secrets.sh", self.secrets], check=True)
        # Characters that must be escaped in libpq's password file.
        self.postgres.password = r"s3cret:of\postgres"
        (self.secrets / "postgres_password").write_text(self.postgres.password)
        self.postgres.start()
        self.s3.start()
        place = {"env": self.environment(), "cwd": self.folder}
        self.process = server = begin([DOCKER / "mlflow.sh"], self.folder / "log", **place)
        page = f"{self.uri}/health"
        wait_until(lambda: status_of(page) == 200, "MLflow", process=server, told=self.log)

    def environment(self) -> dict[str, str]:
        """Returns the environment, which contains addresses and file names but no secret."""
        host, port = self.s3.get_host_and_port()
        quiet = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "AWS_"))}
        return {
            **quiet, "PATH": f"{Path(sys.executable).parent}:{quiet['PATH']}",
            "POSTGRES_PASSWORD_FILE": str(self.secrets / "postgres_password"),
            "POSTGRES_ADDRESS": f"127.0.0.1:{self.postgres.port}",
            "AWS_SHARED_CREDENTIALS_FILE": str(self.secrets / "s3_mlflow"),
            "AWS_DEFAULT_REGION": "us-east-1", "MLFLOW_S3_ENDPOINT_URL": f"http://{host}:{port}",
            "BUCKET": BUCKET, "HOST": "127.0.0.1", "PORT": str(self.port), "WORKERS": "1",
        }  # fmt: skip

    def log(self) -> str:
        """Returns the output of the server."""
        return (self.folder / "log").read_text()

    def stop(self) -> None:
        """Stops all three services."""
        if self.process is not None:
            kill(self.process)
        self.s3.stop()
        self.postgres.stop()
